"""URLs of object stores: parse them, and configure the client and Spark to reach them.

Credentials come from the environment and from ``Settings.storage_options``; the settings take precedence.
Only the client, and a Spark session that this process starts, get the credentials. A URL with credentials is
refused, because URLs are stored in the catalog and shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from strandline.errors import InvalidArgument, PreconditionFailed
from strandline.settings import Settings

__all__ = ["SCHEMES", "Bucket", "bucket_of", "is_url"]

SCHEMES = ("s3", "gs", "az")
_CLIENT = ("allow_http", "allow_invalid_certificates", "connect_timeout", "proxy_url", "root_certificate")
"""Options that configure the client's connection; all other options configure the store."""
_ENDPOINT = re.compile(r"https?://[\w.\[\]-]+(:\d+)?(/[\w./~-]*)?", re.ASCII)
_FAMILIES = ("AWS_", "AZURE_", "GOOGLE_")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_AZURE_ACCOUNTS = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")


def is_url(location: object) -> bool:
    """Return True if a location looks like a URL, even a malformed one, and False for a folder."""
    return isinstance(location, str) and "://" in location and not location.startswith("file:")


@dataclass(frozen=True)
class Bucket:
    """A part of a bucket: all objects whose names begin with ``prefix`` and a slash."""

    scheme: str
    name: str
    prefix: str

    @property
    def url(self) -> str:
        return "/".join(filter(None, (f"{self.scheme}://{self.name}", self.prefix)))

    def store(self, settings: Settings, *, retries: int | None = None) -> Any:
        """Return a client.

        Args:
            retries: maximum number of retries of a request. None: the number in the settings.
        """
        try:
            from obstore.exceptions import BaseError
        except ImportError:
            raise PreconditionFailed(
                f"{self.url} needs the package obstore, which is not installed",
                "Install it with: pip install 'strandline[s3]' (for Google Cloud and Azure, too).",
            ) from None
        given = dict(settings.storage_options)
        client: dict[str, Any] = {key: given.pop(key) for key in _CLIENT if key in given}
        endpoint = self._endpoint(given)
        if endpoint is not None and not _ENDPOINT.fullmatch(endpoint):
            raise InvalidArgument(
                f"the endpoint for {self.url} is not the address of a server",
                "Write it as https://host or http://host:port, without a user or a password.",
            )
        client["timeout"] = timedelta(seconds=settings.storage_timeout_seconds)
        if (endpoint or "").startswith("http://"):
            client.setdefault("allow_http", True)  # The user named this endpoint, so plain HTTP is intended.
        around = {name: value for name, value in os.environ.items() if name.startswith(_FAMILIES)}
        if odd := [name for name, value in {**around, **given}.items() if not value.isprintable()]:
            # The client would crash with such values.
            raise InvalidArgument(
                f"the value of {min(odd)} has characters that cannot be part of it",
                "Check for line breaks, and set it again.",
            )
        retry = {
            "max_retries": settings.storage_retries if retries is None else retries,
            "retry_timeout": timedelta(seconds=settings.storage_retry_seconds),
        }
        try:
            return self._client(given, client_options=client, retry_config=retry)
        except (BaseError, ValueError, TypeError):
            # The client's message may repeat a value, which may be a secret.
            named = ", ".join(sorted(settings.storage_options)) or "none are given"
            raise InvalidArgument(
                f"the options for {self.url} cannot be used: {named}",
                "Check their names and values in Settings.storage_options, and the variables AWS_*, "
                "GOOGLE_* or AZURE_* of the environment.",
            ) from None

    def _client(self, given: dict[str, str], **how: Any) -> Any:
        from obstore.store import AzureStore, GCSStore, S3Store

        prefix = self.prefix or None
        if self.scheme == "gs":
            return GCSStore(self.name, prefix=prefix, config=given, **how)  # type: ignore[arg-type]
        if self.scheme == "az":
            return AzureStore(self.name, prefix=prefix, config=given, **how)  # type: ignore[arg-type]
        profile = os.environ.get("AWS_PROFILE")
        if profile and "access_key_id" not in given and not os.environ.get("AWS_ACCESS_KEY_ID"):
            how["credential_provider"] = _of_profile(profile)
        return S3Store(self.name, prefix=prefix, config=given, **how)  # type: ignore[arg-type]

    def spark_path(self, name: str, settings: Settings) -> str:
        """Return the URL of an object for Spark, with Hadoop's scheme for the store."""
        where = "/".join(filter(None, (self.prefix, name)))
        if self.scheme == "az":
            host = f"{self._account(settings)}.dfs.core.windows.net"
            return f"abfss://{self.name}@{host}/{where}"
        return f"{'s3a' if self.scheme == 's3' else self.scheme}://{self.name}/{where}"

    def spark_options(self, settings: Settings) -> dict[str, str]:
        """Return the settings that a new Spark session needs to reach the bucket."""
        given = settings.storage_options
        found: dict[str, str | None] = {}
        if self.scheme == "s3":
            # Only for this bucket: the session may use other credentials for other buckets.
            at = f"spark.hadoop.fs.s3a.bucket.{self.name}."
            endpoint = self._endpoint(given)
            found = {
                "access.key": given.get("access_key_id") or os.environ.get("AWS_ACCESS_KEY_ID"),
                "secret.key": given.get("secret_access_key") or os.environ.get("AWS_SECRET_ACCESS_KEY"),
                "session.token": given.get("session_token") or os.environ.get("AWS_SESSION_TOKEN"),
                "endpoint": endpoint,
                "endpoint.region": given.get("region") or os.environ.get("AWS_REGION"),
                "attempts.maximum": str(settings.storage_retries + 1),
                "retry.limit": str(settings.storage_retries),
            }
            if endpoint:
                hosted = given.get("virtual_hosted_style_request", "false").lower() == "true"
                found["path.style.access"] = "false" if hosted else "true"
                found["connection.ssl.enabled"] = str(not endpoint.startswith("http://")).lower()
            if found["access.key"]:
                kind = "Temporary" if found["session.token"] else "Simple"
                found["aws.credentials.provider"] = f"org.apache.hadoop.fs.s3a.{kind}AWSCredentialsProvider"
        elif self.scheme == "gs":
            at = "spark.hadoop.google.cloud.auth.service.account."
            file = given.get("application_credentials") or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
            found = {"json.keyfile": file, "enable": "true" if file else None}
        else:
            at = "spark.hadoop.fs.azure.account.key."
            key = given.get("account_key") or os.environ.get("AZURE_STORAGE_ACCOUNT_KEY")
            found = {f"{self._account(settings)}.dfs.core.windows.net": key}
        return {at + key: value for key, value in found.items() if value}

    def _endpoint(self, given: Mapping[str, str]) -> str | None:
        if self.scheme != "s3":
            return given.get("endpoint")
        named = given.get("aws_endpoint_url_s3") or given.get("endpoint")
        return named or next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)

    def _account(self, settings: Settings) -> str:
        named = (os.environ.get(name) for name in _AZURE_ACCOUNTS)
        account = settings.storage_options.get("account_name") or next(filter(None, named), None)
        if not account:
            raise PreconditionFailed(
                f"the storage account of {self.url} is not named",
                "Set AZURE_STORAGE_ACCOUNT_NAME, or account_name in Settings.storage_options.",
            )
        return account


def bucket_of(url: str) -> Bucket:
    """Parse a URL. Error messages do not repeat a URL that may hold a secret."""
    try:
        parts = urlsplit(url)
        host, has_secret = parts.netloc, "@" in parts.netloc or parts.query or parts.fragment
    except ValueError:
        raise InvalidArgument("this is not a URL", "Write it as s3://bucket/folder.") from None
    if has_secret or "?" in url or "#" in url:
        raise InvalidArgument(
            f"the URL of a warehouse may have only a bucket and a path, and this {parts.scheme}:// URL "
            "has more",
            "Remove user, password, query and fragment; put credentials into the environment or into "
            "Settings.storage_options.",
        )
    if parts.scheme not in SCHEMES:
        raise InvalidArgument(
            f"a warehouse cannot live at {url[:80]!r}",
            "Use a folder, or a URL that begins with s3://, gs:// or az://.",
        )
    names = parts.path.strip("/").split("/") if parts.path.strip("/") else []
    if not host or any(name in ("", ".", "..") or not name.isprintable() for name in names):
        raise InvalidArgument(f"{url[:80]!r} names no place in a bucket", "Write it as s3://bucket/folder.")
    try:
        url.encode()
    except UnicodeError:
        raise InvalidArgument(f"{url[:80]!r} is not text in UTF-8", "Choose a name that is.") from None
    if len(url) > 800:
        raise InvalidArgument(f"the URL {url[:40]!r}... is too long", "Choose a shorter one.")
    return Bucket(parts.scheme, host, "/".join(names))


def _of_profile(profile: str) -> Any:
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise PreconditionFailed(
            f"the AWS profile {profile} can only be read with boto3, which is not installed",
            "Install boto3, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        ) from None
    try:
        return Boto3CredentialProvider(Session(profile_name=profile))
    # boto3 raises many kinds of errors, and their messages may quote the file with the secrets.
    except Exception:
        raise PreconditionFailed(
            f"the AWS profile {profile} cannot be used",
            "Check AWS_PROFILE and the files that it is in, or set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY.",
        ) from None
