"""Packs that were changed after they were made."""

import io
import tarfile


def rewritten(packed, target, change):
    """The pack with the members that `change` gives: a dict from name to bytes in, another out."""
    with tarfile.open(packed) as tar:
        members = {member.name: tar.extractfile(member).read() for member in tar.getmembers()}
    with tarfile.open(target, "w:gz") as tar:
        for name, content in change(members).items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return target


def member(name, content=b"", **attributes):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, content


def tarred(target, *members):
    with tarfile.open(target, "w:gz") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return target
