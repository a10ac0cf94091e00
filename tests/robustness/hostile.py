"""Files that are damaged, forged, or of other types than expected."""

import copy
import hashlib
import io
import json
import zipfile

import numpy as np
from hypothesis import strategies as st


def outcome(load, naming=""):
    """What `load` gives, or None where it raises an error that the package promises.

    Those are exactly ValueError and TypeError, or an OSError: an error of some library below, even
    one that inherits from these, says nothing of the file.
    """
    try:
        return load()
    except (ValueError, TypeError, OSError) as error:
        if type(error) in (ValueError, TypeError) or isinstance(error, OSError):
            if naming not in str(error):
                raise AssertionError(f"{error!r} does not name {naming!r}") from error
            return None
        raise


@st.composite
def damaged(draw, intact):
    """The bytes of a file with something wrong with them."""
    kind = draw(st.sampled_from(["random", "truncated", "flipped", "spliced", "zeroed"]))
    data = bytearray(intact)
    if kind == "random":
        return draw(st.binary(max_size=400))
    if kind == "truncated":
        return bytes(data[: draw(st.integers(0, len(data) - 1))])
    if kind == "flipped":
        for position in draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=6)):
            data[position] ^= 1 << draw(st.integers(0, 7))
        return bytes(data)
    start = draw(st.integers(0, len(data) - 1))
    stop = min(len(data), start + draw(st.integers(1, 64)))
    if kind == "spliced":
        data[start:stop] = draw(st.binary(max_size=80))
    else:
        data[start:stop] = bytes(stop - start)
    return bytes(data)


NUMBERS = [0, -1, 1, 2**63, -(2**63) - 1, 10**400, 0.5, -0.0, float("inf"), float("nan"), 1e308]
SCALARS = [None, True, False, "", "inf", "nan", "\ud800", "\0", *NUMBERS]
STRANGE = [*SCALARS, [], {}, [[]], [None], {"": None}, [1, 2, 3], {"a": {"b": []}}]


@st.composite
def confused(draw, content):
    """A JSON value with one of its parts replaced, left out or added."""
    content = copy.deepcopy(content)
    paths = list(_paths(content))
    *parents, last = draw(st.sampled_from(paths))
    place = content
    for key in parents:
        place = place[key]
    kind = draw(st.sampled_from(["replaced", "replaced", "left out", "added"]))
    if kind == "replaced":
        place[last] = draw(st.sampled_from(STRANGE))
    elif kind == "left out":
        del place[last]
    elif isinstance(place, dict):
        place[draw(st.text(max_size=5))] = draw(st.sampled_from(STRANGE))
    else:
        place.append(draw(st.sampled_from(STRANGE)))
    return content


def _paths(content, prefix=()):
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in items:
        yield (*prefix, key)
        if isinstance(value, (dict, list)) and value:
            yield from _paths(value, (*prefix, key))


# JSON text that is well formed or nearly so, and hard on a reader
HARD_JSON = [
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b"9" * 10_000,
    b"-" + b"9" * 10_000,
    b"1e999999999",
    b'"\\ud800"',
    b'{"format": "\\u0000"}',
    b"\xff\xfe[\x001\x00]\x00",
    b"\xef\xbb\xbf{}",
    b"null",
    b"[]",
    b"NaN",
    b"",
]


def npz(**members):
    """An archive of members, each an array or the bytes of one."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, member in members.items():
            archive.writestr(f"{name}.npy", member if isinstance(member, bytes) else npy(member))
    return file.getvalue()


def npy(array, allow_pickle=True):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=allow_pickle)
    return file.getvalue()


def npy_of_shape(shape, descr="<f8", n_bytes=64):
    """A file whose header promises more than follows."""
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    file = io.BytesIO()
    np.lib.format.write_array_header_2_0(file, header)
    return file.getvalue() + bytes(n_bytes)


def members_of(path):
    """The members of an archive as bytes."""
    with zipfile.ZipFile(path) as archive:
        return {name.removesuffix(".npy"): archive.read(name) for name in archive.namelist()}


class Landmine:
    """Goes off where it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


FORGERIES = {
    "huge": npy_of_shape((2**40, 2**20, 4)),
    "larger than memory": npy_of_shape((2**36,)),
    "negative": npy_of_shape((-3, 4)),
    "product overflows": npy_of_shape((2**62, 2**62)),
    "not a tuple": npy_of_shape((0,)).replace(b"(0,)", b"'0' "),
    "text": npy(np.array(["a", "b"])),
    "complex": npy(np.ones((3, 2), dtype=complex)),
    "dates": npy(np.array(["2020-01-01"], dtype="M8[D]")),
    "structured": npy(np.zeros((3, 2), dtype=[("a", "f8"), ("b", "i4")])),
    "no dimensions": npy(np.float64(1.0)),
    "empty": npy(np.zeros((0, 0))),
    "other shape": npy(np.zeros((7, 1, 2))),
    "NaN": npy(np.full((3, 2), np.nan)),
    "no array": b"\x93NUMPY",
    "no bytes": b"",
    "header of code": b"\x93NUMPY\x01\x00\x76\x00" + b"__import__('os').system('true')".ljust(118),
}


def sealed(content):
    """A calibration file that was forged with care: its digest is that of its content."""
    if not isinstance(content, dict):
        return json.dumps(content)
    whole = {key: value for key, value in content.items() if key != "digest"}
    text = json.dumps(whole, sort_keys=True).encode()
    return json.dumps({**whole, "digest": hashlib.blake2b(text, digest_size=32).hexdigest()})


def dumps(content):
    return json.dumps(content).encode()
