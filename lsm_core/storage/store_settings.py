"""Settings of a connection to an object store, computed from the catalog's options and the environment.

Stores of Alibaba (``oss://``), Huawei (``obs://``) and Tencent (``cosn://``, ``cos://``) are reached through their S3
interfaces. Nothing in a table's metadata decides which server receives requests: the endpoint is the operator's, and a
bucket's name may not contain parts of an address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from lsm_core.errors import InvalidOption, StorageRefused
from lsm_core.options.catalog_options import (
    COS_DOMAIN,
    COS_HTTPS,
    COS_REGION,
    EXCLUSIVE_CREATE,
    GS_ENDPOINT,
    OBS_ENDPOINT,
    OBS_HTTPS,
    OSS_ENDPOINT,
    OSS_HTTPS,
    OSS_PATH_STYLE,
    S3_ENDPOINT,
    S3_PATH_STYLE,
    S3_REGION,
)
from lsm_core.storage.store_keys import StoreKeys

S3_SCHEMES: Final = ("s3", "s3a")
AZURE_SCHEMES: Final = ("abfs", "abfss")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_AZURE_PLACE: Final = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._-]{0,62}@[A-Za-z0-9][A-Za-z0-9.-]{0,254}")
_REGION: Final = re.compile(r"(oss-)?[a-z]{2}-[a-z0-9-]+")
_WEB: Final = ("http", "https")


class CreationMode(StrEnum):
    """Request by which a store creates an object that must not exist yet."""

    IF_NONE_MATCH = "if-none-match"
    """A put with ``If-None-Match: *``, or the precondition that Google's store has instead."""
    FORBID_OVERWRITE = "forbid-overwrite"
    """A put with the provider's own header (OSS and COS); buckets with versions ignore the header."""
    NONE = "none"
    """A check and a put: two writers may both create the object, so commits need a lock."""


@dataclass(frozen=True)
class Provider:
    """An S3-compatible provider with its own scheme.

    Attributes:
        endpoint_option: catalog option with the server's address.
        endpoint_variable: environment variable with the server's address, if the option is not set.
        key_variables: environment variables for the access key, in order of preference.
        secret_variables: environment variables for the secret key.
        token_variables: environment variables for the session token.
        https_option: catalog option that is false for ``http://``.
        path_style_option: catalog option that is true if the bucket is a part of the path, or "".
        creation_header: header of a put that may not replace an object, or "" if the provider has none.
    """

    endpoint_option: str
    endpoint_variable: str
    key_variables: tuple[str, ...]
    secret_variables: tuple[str, ...]
    token_variables: tuple[str, ...]
    https_option: str
    path_style_option: str = ""
    creation_header: str = ""


_COS: Final = Provider(
    COS_DOMAIN,
    "COSN_ENDPOINT",
    ("COSN_SECRET_ID", "TENCENTCLOUD_SECRET_ID"),
    ("COSN_SECRET_KEY", "TENCENTCLOUD_SECRET_KEY"),
    ("COSN_SESSION_TOKEN", "TENCENTCLOUD_SESSION_TOKEN"),
    COS_HTTPS,
    creation_header="x-cos-forbid-overwrite",
)
PROVIDERS: Final[Mapping[str, Provider]] = {
    "oss": Provider(
        OSS_ENDPOINT,
        "OSS_ENDPOINT",
        ("OSS_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_ID"),
        ("OSS_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_ACCESS_KEY_SECRET"),
        ("OSS_SESSION_TOKEN", "ALIBABA_CLOUD_SECURITY_TOKEN"),
        OSS_HTTPS,
        OSS_PATH_STYLE,
        "x-oss-forbid-overwrite",
    ),
    "obs": Provider(
        OBS_ENDPOINT,
        "OBS_ENDPOINT",
        ("OBS_ACCESS_KEY_ID",),
        ("OBS_SECRET_ACCESS_KEY",),
        ("OBS_SECURITY_TOKEN",),
        OBS_HTTPS,
    ),
    "cosn": _COS,
    "cos": _COS,
}
"""S3-compatible providers by scheme."""


@dataclass(frozen=True)
class StoreSettings:
    """Settings of the connection to one bucket.

    Attributes:
        url: address of the bucket for the library.
        config: settings of the library's store; they hold no keys.
        creation_headers: headers of puts that may not replace an object, sent instead of ``If-None-Match``.
        allows_http: whether requests may be sent without encryption.
        keys: keys from the provider's own environment variables, or None if the library finds them itself.
    """

    url: str
    config: dict[str, Any]
    creation_headers: dict[str, str] = field(default_factory=dict)
    allows_http: bool = False
    keys: StoreKeys | None = None


def creation_mode(scheme: str, options: Mapping[str, str]) -> CreationMode:
    """Return how objects of a scheme are created exclusively: as the operator says, else the safe default.

    Args:
        scheme: scheme of the store.
        options: the catalog's storage options.

    Raises:
        InvalidOption: the scheme does not have the mode.
    """
    provider = PROVIDERS.get(scheme)
    mode = options.get(EXCLUSIVE_CREATE, "").lower()
    if not mode:
        return CreationMode.IF_NONE_MATCH if provider is None else CreationMode.NONE
    modes = [*possible_modes(scheme), CreationMode.NONE]
    if mode not in modes:
        raise InvalidOption(EXCLUSIVE_CREATE, mode, f"{', '.join(modes)} for {scheme}://")
    return CreationMode(mode)


def possible_modes(scheme: str) -> list[CreationMode]:
    """Return the modes of exclusive creation that a store of a scheme may honour, the provider's own first."""
    provider = PROVIDERS.get(scheme)
    own = [CreationMode.FORBID_OVERWRITE] if provider is not None and provider.creation_header else []
    return [*own, CreationMode.IF_NONE_MATCH]


def require_valid(options: Mapping[str, str]) -> None:
    """Check the storage options of a catalog.

    Raises:
        InvalidOption: an address has no host or another scheme than http or https, or a switch is not true or false.
    """
    for key in (S3_ENDPOINT, GS_ENDPOINT):
        if key in options and urlsplit(options[key]).scheme not in _WEB:
            raise InvalidOption(key, options[key], "an address like https://s3.example.com")
    for provider in PROVIDERS.values():
        if provider.endpoint_option in options:
            _address(provider.endpoint_option, options[provider.endpoint_option], secure=True)
    for key in (S3_PATH_STYLE, OSS_PATH_STYLE, OSS_HTTPS, OBS_HTTPS, COS_HTTPS):
        _switch(options, key, default=True)


def settings_of(place: str, options: Mapping[str, str], environment: Mapping[str, str]) -> StoreSettings:
    """Return the settings of the connection to a bucket.

    Args:
        place: address of the bucket, as in ``oss://bucket``.
        options: the catalog's storage options.
        environment: the environment variables.

    Returns:
        The settings.

    Raises:
        InvalidOption: an option or a variable has an invalid value, or the provider's endpoint is not set.
        StorageRefused: the address has no plain name of a bucket, or one of two keys is missing.
    """
    scheme, _, authority = place.partition("://")
    name_form = _AZURE_PLACE if scheme in AZURE_SCHEMES else _BUCKET
    if not name_form.fullmatch(authority):
        expected = "container@account.host" if scheme in AZURE_SCHEMES else "a plain name of a bucket"
        raise StorageRefused(place, f"an address of {scheme}:// needs {expected}", "reach")
    if scheme in PROVIDERS:
        return _provider_settings(place, authority, PROVIDERS[scheme], options, environment)
    if scheme in S3_SCHEMES:
        return _s3_settings(authority, options, environment)
    if scheme in AZURE_SCHEMES:
        endpoint = environment.get("AZURE_STORAGE_ENDPOINT") or environment.get("AZURE_ENDPOINT", "")
        return StoreSettings(place, {}, allows_http=endpoint.startswith("http://"))
    endpoint = options.get(GS_ENDPOINT) or environment.get("STORAGE_EMULATOR_HOST", "")
    if endpoint and urlsplit(endpoint).scheme not in _WEB:
        raise InvalidOption("STORAGE_EMULATOR_HOST", endpoint, "an address with its scheme, like http://localhost:4443")
    config = {"base_url": endpoint.rstrip("/")} if endpoint else {}
    # Google's own clients send no keys to an emulator either.
    keys = StoreKeys("", "", "emulator") if environment.get("STORAGE_EMULATOR_HOST") else None
    return StoreSettings(place, config, allows_http=endpoint.startswith("http://"), keys=keys)


def _s3_settings(bucket: str, options: Mapping[str, str], environment: Mapping[str, str]) -> StoreSettings:
    endpoint = options.get(S3_ENDPOINT)
    own_variable = environment.get("AWS_ENDPOINT_URL_S3")
    if endpoint is not None and own_variable:
        raise InvalidOption(
            S3_ENDPOINT, endpoint, "no other address in the environment variable AWS_ENDPOINT_URL_S3, which precedes it"
        )
    address = endpoint or own_variable or environment.get("AWS_ENDPOINT_URL", "")
    if address and urlsplit(address).scheme not in _WEB:
        variable = "AWS_ENDPOINT_URL_S3" if own_variable else "AWS_ENDPOINT_URL"
        raise InvalidOption(variable, address, "an address with its scheme, like https://s3.example.com")
    config: dict[str, Any] = {"conditional_put": "etag"}
    if S3_REGION in options:
        config["region"] = options[S3_REGION]
    if not _switch(options, S3_PATH_STYLE, default=True) and not _is_number(address):
        config["virtual_hosted_style_request"] = True
        endpoint = None if endpoint is None else _with_bucket(endpoint, bucket)
    if endpoint is not None:
        config["endpoint"] = endpoint
    return StoreSettings(f"s3://{bucket}", config, allows_http=address.startswith("http://"))


def _provider_settings(
    place: str, bucket: str, provider: Provider, options: Mapping[str, str], environment: Mapping[str, str]
) -> StoreSettings:
    if environment.get("AWS_ENDPOINT_URL_S3"):
        raise InvalidOption(
            "AWS_ENDPOINT_URL_S3",
            environment["AWS_ENDPOINT_URL_S3"],
            f"AWS_ENDPOINT_URL in its place, because the first also redirects {place.partition('://')[0]}://",
        )
    scheme = place.partition("://")[0]
    text = options.get(provider.endpoint_option) or environment.get(provider.endpoint_variable, "")
    if not text and provider is _COS and COS_REGION in options:
        text = f"cos.{options[COS_REGION]}.myqcloud.com"
    if not text:
        raise InvalidOption(
            provider.endpoint_option,
            None,
            f"the address of the server of {scheme}:// (catalog option, or the variable {provider.endpoint_variable})",
        )
    address = _address(provider.endpoint_option, text, secure=_switch(options, provider.https_option, default=True))
    is_path_style = _switch(options, S3_PATH_STYLE, default=False)
    if provider.path_style_option:
        is_path_style = _switch(options, provider.path_style_option, default=is_path_style)
    is_path_style = is_path_style or _is_number(address)
    config: dict[str, Any] = {
        "endpoint": address if is_path_style else _with_bucket(address, bucket),
        "virtual_hosted_style_request": not is_path_style,
        "region": options.get(S3_REGION) or options.get(COS_REGION) or _region_of(address),
        "skip_signature": False,
        "conditional_put": "etag",
        "disable_bulk_delete": True,  # OSS has no such request, and the others want a checksum that the library omits
    }
    mode = creation_mode(scheme, options)
    headers = {provider.creation_header: "true"} if mode is CreationMode.FORBID_OVERWRITE else {}
    keys = _environment_keys(place, provider, environment)
    return StoreSettings(f"s3://{bucket}", config, headers, address.startswith("http://"), keys)


def _environment_keys(place: str, provider: Provider, environment: Mapping[str, str]) -> StoreKeys | None:
    """Return the keys in the provider's environment variables, or None if there are none.

    Raises:
        StorageRefused: only one of the two keys is set.
    """
    values = [
        next((environment[name] for name in names if environment.get(name)), "")
        for names in (provider.key_variables, provider.secret_variables, provider.token_variables)
    ]
    if not values[0] and not values[1]:
        return None
    for value, names in zip(values, (provider.key_variables, provider.secret_variables), strict=False):
        if not value:
            raise StorageRefused(place, f"the environment has only one of two keys: set {names[0]}, too", "reach")
    return StoreKeys(values[0], values[1], values[2] or None)


def _address(key: str, text: str, *, secure: bool) -> str:
    """Return an endpoint as an address with a scheme.

    Raises:
        InvalidOption: the text is no address of a server.
    """
    full = text if "://" in text else f"{'https' if secure else 'http'}://{text}"
    parts = urlsplit(full)
    if parts.scheme not in _WEB or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidOption(key, text if "@" not in text else "***", "a host, or an address like https://host")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _with_bucket(address: str, bucket: str) -> str:
    """Return an address with the bucket as first part of its host, where the library expects it."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{bucket}.{parts.netloc}{parts.path}"


def _is_number(address: str) -> bool:
    """Return whether the host of an address is an IP address, which cannot have a bucket as its first part."""
    try:
        ip_address(urlsplit(address).hostname or "")
    except ValueError:
        return False
    return True


def _region_of(address: str) -> str:
    """Return the region in the host of a provider's address, or the library's default region."""
    labels = (urlsplit(address).hostname or "").split(".")
    return next((label.removesuffix("-internal") for label in labels if _REGION.fullmatch(label)), "us-east-1")


def _switch(options: Mapping[str, str], key: str, *, default: bool) -> bool:
    text = options.get(key, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidOption(key, options[key], "true or false")
    return text == "true"
