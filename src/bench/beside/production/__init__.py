"""From a study to production: alerts and limits for it, and whether it has drifted since."""
