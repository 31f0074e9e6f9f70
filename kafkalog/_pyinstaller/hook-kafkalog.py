"""The modules that PyInstaller cannot find by import statements: many are imported at first use."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules

# A program that uses one of these imports it and its package by name.
ON_REQUEST = ("arrow", "opentelemetry", "pandas", "polars", "pushdown", "pytest_plugin", "testing")
BUILD = ("kafkalog._native.build", "kafkalog._native._kl_test", "kafkalog._pyinstaller")


def _wanted(name: str) -> bool:
    return name.split(".")[1:2] not in ([part] for part in ON_REQUEST) and name not in BUILD


hiddenimports = [
    *collect_submodules("kafkalog", filter=_wanted),
    "_cffi_backend",
    "cramjam",
    "lz4.frame",
    "numpy",
    "zstandard",
]
excludedimports = [
    "IPython",
    "cffi",
    "duckdb",
    "pandas",
    "polars",
    "pyarrow",
    "pyspark",
    "pytest",
    "textual",
    "trustme",
]
datas = collect_data_files("kafkalog", includes=["console/static/*"])
