"""Packs that were changed after they were made."""

import hashlib
import io
import json
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


def listed_anew(members, changed):
    """The pack's members with these in place of its own, and a list of files that agrees with them."""
    index, new = json.loads(members["pack.json"]), {**members, **changed}
    index["files"] = {name: hashlib.sha256(new[name]).hexdigest() for name in {**index["files"], **changed}}
    return {**new, "pack.json": json.dumps(index).encode()}


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
