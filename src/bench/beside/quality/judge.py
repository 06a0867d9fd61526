"""The sandbox's judge, a program that `sandbox` runs by its text: the user `nobody` may not be able to read this file.

Two processes: the judge, which runs the tests, and the answer's. They share no memory and no descriptor but two pipes, and the answer's
may not look into the judge's. A call goes to it as data, and its result comes back as data. The verdict is the judge's exit status.
"""

import sys

if __name__ == "__main__" and sys.argv[11:]:  # before any other import, as of a package's parts some may be imported later
    sys.path[:] = sys.argv[11:]
    sys.modules["encodings"].__path__ = [sys.argv[11] + "/encodings"]
import builtins
import ctypes
import os
import pickle
import resource
import signal

TYPE_CHECKING = False  # as of `typing`, which the answer's process has no need of
if TYPE_CHECKING:
    from typing import Any, NoReturn

NO_DATA = os.EX_DATAERR  # status where a test calls the function with what is no data
_DATA = {  # modules, and what of them is handed on
    "builtins": "bool bytearray bytes complex dict float frozenset int iter list range set slice str tuple",
    "collections": "Counter OrderedDict defaultdict deque",
    "datetime": "date datetime time timedelta timezone",
    "decimal": "Decimal",
    "fractions": "Fraction",
}


def plain(value: "Any") -> "Any":
    """A value with data in place of what is not handed on: what comes one by one, views, and pairs with names."""
    if hasattr(value, "__next__"):
        return iter(list(value))
    if isinstance(value, (type({}.keys()), type({}.values()), type({}.items()))):
        return list(value) if isinstance(value, type({}.values())) else set(value)
    if isinstance(value, (list, tuple)):  # those with names too
        return (tuple if isinstance(value, tuple) else list)(map(plain, value))
    return value


class Data(pickle.Unpickler):
    """Reads data alone: nothing that comes from the answer's process is run, or has methods of its own."""

    def find_class(self, module: str, name: str) -> "Any":
        if name not in _DATA[module].split():
            raise pickle.UnpicklingError(name)
        kind = super().find_class(module, name)
        return lambda *args: kind(*args)  # noqa: PLW0108 - not the class itself, of which a pickle could set attributes


if __name__ == "__main__":
    name, room, (code, given, cpu, wall, memory, largest, files, user) = sys.argv[1], sys.argv[2], map(int, sys.argv[3:11])
    libc = ctypes.CDLL(None)
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    if room:  # no file of the machine can be written, but in a folder of its own, which holds so much
        libc.mount(b"proc", b"/proc", b"proc", 0, None)  # where it may, with its own processes alone
        read_only = (ctypes.c_uint64 * 4)(1)
        if libc.syscall(ctypes.c_long(442), -100, b"/", 0x8000, read_only, ctypes.c_size_t(32)):  # mount_setattr, and all below
            sys.exit(1)
        if libc.mount(b"none", os.getcwdb(), b"tmpfs", 6, room.encode()):  # without devices and set-user-ID
            sys.exit(1)
        os.chdir(os.getcwd())

    def read(size: int) -> bytes:
        content = b""
        while len(content) < size and (part := os.read(0, min(size - len(content), 1 << 16))):
            content += part
        return content

    def confine() -> None:
        for limit, most in (
            (resource.RLIMIT_AS, memory),
            (resource.RLIMIT_FSIZE, largest),
            (resource.RLIMIT_NOFILE, files),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_NPROC, 0),
        ):
            resource.setrlimit(limit, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
        signal.signal(signal.SIGXCPU, lambda *_: os._exit(152))  # the first process of a namespace is not ended by default
        if user:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        libc.prctl(38, 1, 0, 0, 0)  # no program that it becomes has more rights
        libc.capset((ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)())
        libc.prctl(4, 0, 0, 0, 0)  # no other process looks into it
        libc.prctl(1, 9, 0, 0, 0)

    answer = read(code)  # and no further: the tests are read when the answer's process is another one
    calls, replies = os.pipe(), os.pipe()
    libc.prctl(4, 0, 0, 0, 0)  # no process looks into this one from the answer's first moment on
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.close(calls[1])
        os.close(replies[0])
        confine()
        del sys.argv[1:]
        scope: "dict[str, Any]" = {"__name__": "__main__"}
        exec(compile(answer, "answer", "exec"), scope)
        called, replied = open(calls[0], "rb"), open(replies[1], "wb")
        while called.peek(1):
            args, more = pickle.load(called)
            try:
                reply = pickle.dumps((True, plain(scope[name](*args, **more)), args))
            except BaseException as error:
                reply = pickle.dumps((False, [kind.__name__ for kind in type(error).__mro__], str(error)))
            replied.write(reply)
            replied.flush()
        os._exit(0)

    def end(status: int) -> "NoReturn":
        try:  # noqa: SIM105 - with nothing more to import
            os.kill(child, 9)
        except (ProcessLookupError, PermissionError):  # it has ended; or it is another user's still, and ends with this process
            pass
        os._exit(status)

    os.close(calls[0])
    os.close(replies[1])
    asked, said = open(calls[1], "wb"), open(replies[0], "rb")
    confine()
    signal.signal(signal.SIGALRM, lambda *_: end(152))
    signal.alarm(wall)

    def candidate(*args: "Any", **more: "Any") -> "Any":
        try:
            call = pickle.dumps((args, more))
        except Exception:
            end(NO_DATA)
        try:
            asked.write(call)
            asked.flush()
            returned, value, after = Data(said).load()
            if returned:
                for own, changed in zip(args, after, strict=False):  # what the function did to its arguments
                    if isinstance(own, list):
                        own[:] = changed
                    elif isinstance(own, (dict, set)):
                        own.clear()
                        own.update(changed)
                return value
            kinds = (scope.get(each) or getattr(builtins, each, None) for each in value)  # the error's class and those above it
            kind = next(each for each in kinds if isinstance(each, type) and issubclass(each, Exception))
        except (EOFError, BrokenPipeError):
            end(152 if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (152, -9) else 1)
        except Exception:
            end(1)
        raise kind(after)

    try:
        scope = {"__name__": "__main__"}
        start, test = read(given), read(sys.maxsize)
        for text in (start, start + b"\n    pass\n"):  # what the tests may use of it; it may end with the function's head
            try:
                exec(compile(text, "task", "exec"), scope)
                break
            except SyntaxError:
                pass
        scope[name] = candidate
        exec(compile(test, "test", "exec"), scope)
        scope["check"](candidate)
    except BaseException:
        end(1)
    end(0)
