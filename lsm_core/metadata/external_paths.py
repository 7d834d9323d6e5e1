"""External data paths of one table (`data-file.external-paths`): folders of new files, and checks of recorded paths.

Schemas and manifests are files that others may have written, so a path in them is used only below a folder that the
operator allows (`lsm_core.options.external_roots`), and never below a table of the warehouse.
"""

from __future__ import annotations

import os
import posixpath
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final
from urllib.parse import unquote

from lsm_core.errors import CorruptFile, InvalidOption, UnsupportedFeature
from lsm_core.options import (
    EXTERNAL_ROOTS,
    ExternalRoot,
    TableOptions,
    find_root,
    is_allowed_place,
    parse_digits,
)
from lsm_core.storage import FileIO, PathBelow, file_io_for, inside_really, is_link, place_of, unify_scheme

EXTERNAL_PATHS: Final = "data-file.external-paths"
STRATEGY: Final = "data-file.external-paths.strategy"
SPECIFIC_FS: Final = "data-file.external-paths.specific-fs"
WEIGHTS: Final = "data-file.external-paths.weights"
_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)?")
_SERVERS: Final = ("http://", "https://", "thrift://")
"""Addresses of catalogs that choose the folder of a new table later."""
_ENTROPY_BITS: Final = 20
_ENTROPY_FOLDERS: Final = ((0, 4), (4, 8), (8, 12), (12, 20))
ENTROPY_DEPTH: Final = len(_ENTROPY_FOLDERS)
"""Number of folders between a bucket and its files with the strategy `entropy-inject`."""
_ENTROPY: Final = re.compile(r"(?<=/)[01]{4}/[01]{4}/[01]{4}/[01]{8}$")
ENTROPY_FOLDER: Final = re.compile("[01]{4}|[01]{8}")
_MOST_CHECKED: Final = 100_000
_CHECKED_FOR: Final = 1.0
"""Seconds for which a local folder counts as free of symbolic links, since others may change it."""
_WORD: Final = 0xFFFFFFFF


@dataclass(frozen=True)
class DeclaredPath:
    """One path of `data-file.external-paths`.

    Attributes:
        address: the path as Paimon writes it into manifests, as in ``file:/data/ext`` or ``s3://bucket/ext``.
        folder: absolute local path, or address in an object store.
        scheme: scheme of the address in lower case; "" for none, which Paimon refuses when it writes.
        refusal: why the address cannot be used (another scheme or host), or "".
    """

    address: str
    folder: str
    scheme: str
    refusal: str = ""


def paimon_address(text: str) -> str:
    """Return an address in the form of Java's `Path.toString`: no empty part, no slash at the end, no empty authority.

    Args:
        text: the address or path.
    """
    match = _ADDRESS.fullmatch(text)
    scheme, authority, path = match.groups() if match else (None, None, text)
    plain = "/" + "/".join(part for part in (path or "").split("/") if part)
    head = "" if scheme is None else f"{scheme}:"
    return f"{head}//{authority}{plain.rstrip('/')}" if authority else f"{head}{plain}"


def _leads_upwards(address: str) -> bool:
    return not {".", ".."}.isdisjoint({*address.split("/"), *unquote(address).split("/")})


def declared_paths(text: str | None) -> tuple[DeclaredPath, ...]:
    """Return the paths of `data-file.external-paths`, without duplicates.

    Args:
        text: value of the option; None or blank for no path.
    """
    declared: dict[str, DeclaredPath] = {}
    for part in filter(None, (part.strip() for part in (text or "").split(","))):
        match = _ADDRESS.fullmatch(part)
        address, scheme = paimon_address(part), match[1].lower() if match else ""
        try:
            path = DeclaredPath(address, file_io_for(part, escaped=False)[1], scheme)
            if _leads_upwards(address):
                path = replace(path, refusal=f"the external path {address}, which has '.' or '..'")
        except (UnsupportedFeature, InvalidOption) as error:
            path = DeclaredPath(address, address, scheme, f"the external path {address} ({error})")
        declared.setdefault(path.folder, path)
    return tuple(declared.values())


def entropy_folders(name: str) -> str:
    """Return the folders that the strategy `entropy-inject` puts between a bucket and a file.

    Args:
        name: name of the file.

    Source: `EntropyInjectExternalPathProvider`.
    """
    bits = format(murmur3(name.encode()) | 1 << 31, "b")[-_ENTROPY_BITS:]
    return "/".join(bits[start:end] for start, end in _ENTROPY_FOLDERS)


def murmur3(data: bytes) -> int:
    """Return the 32-bit Murmur3 hash of bytes, with seed 0, as an unsigned number.

    Paimon's own variant (`lsm_core.format.hashing`) treats the last bytes differently.

    Args:
        data: the bytes.

    Source: Guava's `Hashing.murmur3_32`.
    """
    state = 0
    for start in range(0, len(data), 4):
        part = data[start : start + 4]
        mixed = int.from_bytes(part, "little") * 0xCC9E2D51 & _WORD
        mixed = (mixed << 15 | mixed >> 17) * 0x1B873593 & _WORD
        state ^= mixed
        if len(part) == 4:
            state = ((state << 13 | state >> 19) & _WORD) * 5 + 0xE6546B64 & _WORD
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & _WORD
    state = (state ^ state >> 13) * 0xC2B2AE35 & _WORD
    return state ^ state >> 16


def find_weights(text: str | None, count: int, table: str) -> list[int] | None:
    """Return the weights of the external paths, or None if the paths are used in turn.

    Args:
        text: value of `data-file.external-paths.weights`, or None.
        count: number of external paths.
        table: name of the table, for the error.

    Raises:
        InvalidOption: a weight is not a positive number, or the number of weights differs from that of the paths.
    """
    if text is None or count < 2:
        return None
    numbers = [parse_digits(part.strip()) for part in text.split(",")]
    weights = [number for number in numbers if number is not None and 0 < number < 1 << 31]
    if len(weights) != len(numbers) or len(weights) != count:
        raise InvalidOption(WEIGHTS, text, f"{count} positive numbers, one for each path of '{EXTERNAL_PATHS}'", table)
    return weights


def find_overlap(folder: str, root: str) -> str | None:
    """Return how a folder overlaps a table or another table of its warehouse, judged by name, or None.

    Args:
        folder: absolute path, or address in an object store.
        root: the table's folder.
    """
    slashed = folder.rstrip("/") + "/"
    if f"{root}/".startswith(slashed):
        return f"contains the folder of the table itself, {root}"
    if slashed.startswith(f"{root}/"):
        return f"is inside the folder of the table itself, {root}"
    database = posixpath.dirname(root)
    warehouse = posixpath.dirname(database).rstrip("/")
    if database.endswith(".db") and slashed.startswith(f"{warehouse}/"):
        name = slashed[len(warehouse) + 1 :].split("/")[0]
        if name.endswith(".db"):
            return f"is inside database {name.removesuffix('.db')} of the warehouse, so it is another table's"
    return None


class ExternalPaths:
    """External data paths of one table, with the operator's permissions.

    Attributes:
        declared: paths of `data-file.external-paths`.
        strategy: `data-file.external-paths.strategy`.
        roots: folders that the operator allows, of the catalog before those of the environment.
    """

    def __init__(
        self,
        table: str,
        root: str,
        options: TableOptions,
        roots: Sequence[ExternalRoot],
    ) -> None:
        """Prepare the paths; no file is accessed.

        Args:
            table: name of the table, for messages.
            root: the table's folder.
            options: options of the table.
            roots: folders that the operator allows.
        """
        self.table, self.root, self.roots = table, root, tuple(roots)
        self.declared = declared_paths(options.get(EXTERNAL_PATHS))
        self.strategy = str(options.get(STRATEGY)).lower()
        self._options = options
        self._linkless: set[tuple[str, str]] = set()
        self._checked_at = time.monotonic()
        self._turn = random.randrange(1 << 16)  # noqa: S311  # spreads the files of many writers
        self._random = random.Random()  # noqa: S311
        self._targets: tuple[tuple[DeclaredPath, ...], list[int] | None] | None = None
        self._folders: dict[str, str] = {}
        self._deletable: dict[str, bool] = {}

    # -- permissions -----------------------------------------------------------------------------------------------

    def permission(self, folder: str) -> ExternalRoot | None:
        """Return the allowed root that contains a folder or file, or None.

        A folder of `DREDGE_ALLOWED_PLACES` allows paths that the table declares.

        Args:
            folder: absolute path, or address in an object store.
        """
        root = find_root(self.roots, folder)
        if root is not None:
            return root
        for declared in self.declared:
            place = ExternalRoot(declared.folder, writable=True)
            if place.contains(folder) and is_allowed_place(declared.folder):
                return place
        return None

    @property
    def permissions(self) -> str:
        """The permissions that apply to this table, in the form of :data:`EXTERNAL_ROOTS`, for other processes."""
        roots = [*self.roots]
        for declared in self.declared:
            root = self.permission(declared.folder)
            if root is not None and root not in roots:
                roots.append(root)
        return ",".join(map(str, roots))

    def describe_refusal(self, folder: str, *, writing: bool = False) -> str | None:
        """Return why files in a folder cannot be used, with the remedy, or None if they can.

        Only names are compared.

        Args:
            folder: absolute path, or address in an object store.
            writing: whether files are written or deleted, not only read.
        """
        refused = next((path.refusal for path in self.declared if path.refusal and path.folder == folder), None)
        if refused is not None:
            return refused
        if not self.root.startswith(_SERVERS) and bool(place_of(folder)) != bool(place_of(self.root)):
            return f"external paths on another kind of storage than the table's ({folder})"
        own = self._find_own(folder)
        if own is not None:
            return f"the external path {folder}, which {own}: name a folder outside of the warehouse's tables"
        root = self.permission(folder)
        mode = "rw" if writing else "r"
        if root is None:
            places = (path.folder for path in self.declared)
            declared = next((place for place in places if ExternalRoot(place, writable=True).contains(folder)), None)
            whose = f", which '{EXTERNAL_PATHS}' does not declare" if declared is None else ""
            return (
                f"data files outside its folder{whose}, in {declared or folder}: the operator does not allow this "
                f"folder; add '{declared or folder}:{mode}' or a folder above it to {EXTERNAL_ROOTS}"
            )
        if writing and not root.writable:
            return (
                f"new or deleted files in the external path {folder}: {EXTERNAL_ROOTS} allows '{root}' for reading "
                f"only; set '{root.folder}:rw'"
            )
        return None

    def _find_own(self, folder: str) -> str | None:
        """Return how a folder overlaps this table or a table of its warehouse, or None if it does not."""
        overlap = find_overlap(unify_scheme(folder), unify_scheme(self.root))
        if overlap is None and not place_of(folder):
            try:
                overlap = find_overlap(os.path.realpath(folder), os.path.realpath(self.root))
            except ValueError:  # a NUL inside
                return "is no path"
        return overlap

    @property
    def deletable_folders(self) -> list[str]:
        """Declared external paths in which the operator allows deletions; those of other tables are refused later."""
        permissions = ((path.folder, self.permission(path.folder)) for path in self.declared if not path.refusal)
        return [folder for folder, root in permissions if root is not None and root.writable]

    # -- recorded paths --------------------------------------------------------------------------------------------

    def locate(self, external_path: str, name: str) -> str:
        """Return the path of a file in the folder of a recorded external path, checked to be allowed for reading.

        Args:
            external_path: external path in a manifest.
            name: checked name of the data file, or of its side file in the same folder.

        Raises:
            CorruptFile: the path has ``..`` or leads out of the allowed folder, possibly by a symbolic link.
            UnsupportedFeature: the operator does not allow the folder, or it is on another kind of storage.
        """
        recorded = external_path.rpartition("/")[0]
        self._forget_old_checks()
        folder = self._folders.get(recorded)
        if folder is None:
            folder = self._checked_folder(recorded)
            if len(self._folders) >= _MOST_CHECKED:
                self._folders.clear()
            self._folders[recorded] = folder
        path = f"{folder}/{name}"
        if not place_of(path) and is_link(path):
            raise CorruptFile(path, "it is a symbolic link, which may lead out of the allowed folder")
        return path

    def _forget_old_checks(self) -> None:
        """Make the next use of a local folder look for symbolic links again; object stores have none."""
        if not place_of(self.root) and time.monotonic() - self._checked_at > _CHECKED_FOR:
            self._linkless.clear()
            self._folders.clear()
            self._checked_at = time.monotonic()

    def _checked_folder(self, recorded: str) -> str:
        if _leads_upwards(recorded) or "\x00" in recorded:
            raise CorruptFile(recorded, "an external path with '.' or '..', or a character that no path has")
        if not recorded.startswith("/") and _ADDRESS.fullmatch(recorded) is None:
            raise CorruptFile(recorded, "an external path that is no absolute path and no address")
        folder = file_io_for(recorded, escaped=False)[1]
        self._require(folder)
        return folder

    def _require(self, folder: str) -> None:
        reason = self.describe_refusal(folder)
        if reason is not None:
            if self.declared and self.permission(folder) is None and not self.is_declared(folder):
                raise CorruptFile(folder, f"an external path that {EXTERNAL_PATHS} does not declare ({reason})")
            raise UnsupportedFeature(reason, self.table)
        root = self.permission(folder)
        assert root is not None
        inside_really(root.folder, f"{folder}/-", self._linkless)

    def is_declared(self, folder: str) -> bool:
        """Return whether a folder is a path of `data-file.external-paths`, or below one.

        Args:
            folder: absolute path, or address in an object store.
        """
        return self.find_declared(folder) is not None

    def find_declared(self, path: str) -> str | None:
        """Return the folder of `data-file.external-paths` that contains a folder or file, or None.

        Args:
            path: absolute path, or address in an object store.
        """
        folders = (declared.folder for declared in self.declared)
        return next((folder for folder in folders if ExternalRoot(folder, writable=True).contains(path)), None)

    def deletable(self, path: str, file_io: FileIO) -> str:
        """Return the path of an external file as it may be deleted; symbolic links are not followed then.

        Args:
            path: absolute path, or address in an object store.
            file_io: access to the files.

        Raises:
            CorruptFile: the path leads out of the allowed folder, or is in another table's folder.
            UnsupportedFeature: the operator does not allow deletions there.
        """
        folder = path.rpartition("/")[0]
        reason = self.describe_refusal(folder, writing=True)
        root = self.permission(folder)
        own = self._find_own(folder)
        if own is not None and root is not None:
            raise CorruptFile(path, f"its folder {own}, so it may be a file of another table")
        if reason is not None or root is None:
            raise UnsupportedFeature(reason or path, self.table)
        clean = inside_really(root.folder, path, self._linkless)
        # An object store would be asked for each of the folders that only this strategy creates.
        self.require_no_table(root, _ENTROPY.sub("", clean.rpartition("/")[0]), file_io)
        return PathBelow.of(root.folder, clean)

    def may_delete(self, external_path: str) -> bool:
        """Return whether the operator allows the deletion of a recorded file.

        Args:
            external_path: external path in a manifest.
        """
        recorded = external_path.rpartition("/")[0]
        if recorded not in self._deletable:
            try:
                folder = self.locate(f"{recorded}/-", "-").rpartition("/")[0]
                self._deletable[recorded] = self.describe_refusal(folder, writing=True) is None
            except (CorruptFile, UnsupportedFeature, InvalidOption):
                self._deletable[recorded] = False
        return self._deletable[recorded]

    def require_no_table(self, root: ExternalRoot, folder: str, file_io: FileIO) -> None:
        """Raise an error if a folder is below the folder of a table.

        Args:
            root: allowed root that contains the folder; folders above it are not examined.
            folder: the folder.
            file_io: access to the files.

        Raises:
            CorruptFile: the folder, or one between it and the root, has schema files.
        """
        folder = folder.rstrip("/")
        while root.contains(folder):
            key = (root.folder, f"{folder}/schema")
            if key not in self._linkless:
                if any(status.name.startswith("schema-") for status in file_io.list_dir(f"{folder}/schema")):
                    raise CorruptFile(folder, f"{folder} is the folder of another table")
                self._linkless.add(key)
            folder = folder.rpartition("/")[0]

    # -- new files -------------------------------------------------------------------------------------------------

    @property
    def takes_new_files(self) -> bool:
        """Whether new data files are written to external paths."""
        return bool(self.declared) and self.strategy != "none"

    def targets(self) -> tuple[tuple[DeclaredPath, ...], list[int] | None]:
        """Return the external paths of new files, and their weights (None: in turn).

        Raises:
            InvalidOption: the strategy and its options contradict each other.
        """
        if self._targets is not None:
            return self._targets
        paths = self.declared
        for path in paths:
            if not path.scheme:
                accepted = "addresses with a scheme, as in file:///data"
                raise InvalidOption(EXTERNAL_PATHS, path.address, accepted, self.table)
        if self.strategy == "specific-fs":
            scheme = str(self._options.get(SPECIFIC_FS) or "").lower()
            paths = tuple(path for path in paths if path.scheme == scheme)
            if not paths:
                accepted = f"the scheme of a path in '{EXTERNAL_PATHS}', because the strategy is specific-fs"
                raise InvalidOption(SPECIFIC_FS, self._options.get(SPECIFIC_FS), accepted, self.table)
        weighted = self.strategy == "weight-robin"
        weights = find_weights(self._options.get(WEIGHTS), len(paths), self.table) if weighted else None
        self._targets = paths, weights
        return self._targets

    def refusals(self) -> Iterator[str]:
        """Yield why new files cannot be written to external paths; only names are compared."""
        try:
            paths = self.targets()[0] if self.takes_new_files else ()
        except InvalidOption as error:
            yield str(error)
            return
        for path in paths:
            reason = self.describe_refusal(path.folder, writing=True)
            if reason is not None:
                yield reason

    def choose(self, bucket_folder: str, name: str, file_io: FileIO) -> tuple[str, str]:
        """Return the path of a new file, and the external path to record in its manifest entry.

        Args:
            bucket_folder: folder of the bucket, relative to the table's folder.
            name: name of the file.
            file_io: access to the files.

        Raises:
            UnsupportedFeature: the operator does not allow the folder.
            InvalidOption: the strategy and its options contradict each other.
            CorruptFile: the folder is in another table's folder, or reached by a symbolic link.
        """
        paths, weights = self.targets()
        if weights is None:
            self._turn += 1
            path = paths[self._turn % len(paths)]
        else:
            (path,) = self._random.choices(paths, cum_weights=list(accumulate(weights)))
        reason = self.describe_refusal(path.folder, writing=True)
        if reason is not None:
            raise UnsupportedFeature(reason, self.table)
        parts = [bucket_folder, entropy_folders(name)] if self.strategy == "entropy-inject" else [bucket_folder]
        below = "/".join([*parts, name])
        root = self.permission(path.folder)
        assert root is not None
        self._forget_old_checks()
        target = inside_really(root.folder, f"{path.folder.rstrip('/')}/{below}", self._linkless)
        self.require_no_table(root, path.folder, file_io)
        return str(target), f"{path.address.rstrip('/')}/{below}"

    def bucket_folders(self, bucket_folder: str) -> list[str]:
        """Return the folders of a bucket in the declared external paths that the operator allows for writing.

        Args:
            bucket_folder: folder of the bucket, relative to the table's folder.
        """
        allowed = (path for path in self.declared if self.describe_refusal(path.folder, writing=True) is None)
        return [f"{path.folder.rstrip('/')}/{bucket_folder}" for path in allowed]
