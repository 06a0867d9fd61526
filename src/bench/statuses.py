"""What HTTP statuses mean here, whoever asks."""

UNAUTHORIZED = (401, 403)
ABSENT = (404, 405, 501)  # no such path, or not for such a request
RATE_LIMITED = 429
GATEWAY = (502, 503, 504)  # nothing behind it answers: not yet, not now, or not any more
BUSY = (RATE_LIMITED, *GATEWAY)  # says nothing about what was asked
RETRY_AFTER = (RATE_LIMITED, 503)  # may name the moment for another try
