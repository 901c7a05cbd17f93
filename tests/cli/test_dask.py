"""With `--dask`, commands give what they give without."""

import contextlib
import json
import signal
import socket
import sys
import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.cli import cluster as cluster_module
from congruence.cli import main
from congruence.errors import CongruenceWarning, InputError, TableError
from congruence.tables import Table, lazy, read_table, write_table
from congruence.tables.parts import lazy_parts

da = pytest.importorskip("dask.array", reason="dask is not installed")
distributed = pytest.importorskip("distributed", reason="distributed is not installed")
pytest.importorskip("zarr", reason="zarr is not installed")


@pytest.fixture(scope="module")
def scheduler(local_cluster):
    """The address of a scheduler with two workers in processes of their own."""
    with local_cluster(n_workers=2, threads_per_worker=1) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lazy, "BLOCK_BYTES", 8 * 5 * 700)
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(3000, 5)) @ rng.normal(size=(5, 5)) + 2
    ids = np.array([f"row{i}" for i in range(3000)])
    return Table(x, "t", ids, {"Metadata_plate": ids[::-1].copy()}, tuple("abcde"))


def run(capsys, *arguments, command="resolve"):
    sys.argv = ["congruence", command, *map(str, arguments)]
    with pytest.raises(SystemExit) as stopped:
        main()
    printed = capsys.readouterr()
    return stopped.value.code or 0, printed.out, printed.err


@pytest.mark.parametrize(("given", "out"), [("t.zarr", "c.zarr"), ("t.parquet", "c.parquet"), ("t.npz", "c.csv")])
def test_components_are_those_of_this_machine(table, given, out, scheduler, capsys):
    write_table(table, given)
    code, here, _ = run(capsys, given, "--out", f"here-{out}")
    assert code == 0
    code, there, error = run(capsys, given, "--out", f"there-{out}", "--dask", scheduler)
    assert (code, there, error) == (0, here, "")
    local, found = read_table(f"here-{out}"), read_table(f"there-{out}")
    assert_allclose(found.values, local.values, atol=1e-6)
    assert found.features == ("ica0", "ica1", "ica2", "ica3", "ica4")
    assert_array_equal(found.ids, table.ids)
    assert_array_equal(found.metadata["Metadata_plate"], table.metadata["Metadata_plate"])


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be blocked")
def test_ctrl_c_in_a_terminal_does_not_reach_the_workers():
    def blocked():
        return {signal.SIGINT, signal.SIGHUP} & signal.pthread_sigmask(signal.SIG_BLOCK, ())

    with cluster_module.on_cluster("local"):
        assert distributed.get_client().submit(blocked).result() == {signal.SIGINT, signal.SIGHUP}
    assert not blocked()


@pytest.mark.parametrize("flags", [[], ["--dask"]])
def test_rows_that_workers_refuse_are_those_of_a_named_table(table, flags, scheduler, capsys):
    flags = [*flags, scheduler][: 2 * len(flags)]
    write_table(table, "sound.parquet")
    assert run(capsys, "sound.parquet", "--model", "m.safetensors")[0] == 0
    table.values[2000] = np.nan
    write_table(table, "gap.parquet")
    for more in ([], ["--apply", "m.safetensors", "--out", "c.parquet"]):
        code, _, error = run(capsys, "gap.parquet", *more, *flags)
        assert (code, error.count("\n")) == (2, 1)
        assert "gap" in error
        assert "(row 2000" in error


def split(table, name, cuts=(1000, 1700)):
    edges = [0, *cuts, table.n]
    for i, (a, b) in enumerate(pairwise(edges)):
        beside = {key: column[a:b] for key, column in table.metadata.items()}
        write_table(Table(table.values[a:b], "p", table.ids[a:b], beside, table.features), name.format(i))


def test_a_model_is_applied_by_workers(table, scheduler, capsys):
    split(table, "part{}.parquet")
    code, _, error = run(capsys, "part*.parquet", "--model", "ica.safetensors", "--dask", scheduler, "-q")
    assert (code, error) == (0, "")
    shuffled = Table(table.values[:, ::-1].copy(), "t", table.ids, table.metadata, table.features[::-1])
    write_table(shuffled, "t.zarr")
    split(shuffled, "turned{}.parquet")
    for given in ("t.zarr", "turned*.parquet"):
        for name, where in (("here", []), ("there", ["--dask", scheduler])):
            code, _, error = run(capsys, given, "--apply", "ica.safetensors", "--out", f"{name}.parquet", *where)
            assert (code, error) == (0, f"3000 rows resolved: {name}.parquet\n")
        here, there = read_table("here.parquet"), read_table("there.parquet")
        assert_allclose(there.values, here.values, atol=1e-10)
        assert_array_equal(there.ids, table.ids)
        assert there.features == here.features
    arguments = ["--apply", "ica.safetensors", "--inverse", "--out", "back.parquet", "--dask", scheduler]
    code, _, error = run(capsys, "there.parquet", *arguments)
    assert (code, error) == (0, "3000 rows mapped back to embeddings: back.parquet\n")
    assert_allclose(read_table("back.parquet").values, table.values, atol=1e-9)
    assert read_table("back.parquet").features == table.features


def test_parts_are_translated_by_workers(table, scheduler, capsys):
    split(table, "part{}.parquet")
    write_table(Table(table.values @ np.diag([1, 2, 3, 4, 5.0]), "old", table.ids, {}, table.features), "old.parquet")
    fit = ["fit", "old.parquet", "part*.parquet", "--nulls", "1", "--bootstrap", "20", "--map", "up.safetensors", "-q"]
    assert run(capsys, *fit, command="translate")[0] == 0
    for name, where in (("here", []), ("there", ["--dask", scheduler])):
        arguments = ["apply", "up.safetensors", "part*.parquet", "--flag-far", "--out", name, *where]
        code, _, error = run(capsys, *arguments, command="translate")
        assert code == 0
        assert f"3000 rows in 3 parts translated: {name}\n" in error
    for part in ("part0.parquet", "part1.parquet", "part2.parquet"):
        here, there = read_table(f"here/{part}"), read_table(f"there/{part}")
        assert_array_equal(there.values, here.values)
        assert_array_equal(there.ids, here.ids)
        assert set(there.metadata) == {"Metadata_plate", "far"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": tuple("abcdx")}, "lacks columns that the model was fitted on: e"),
        ({"holed": 2345}, "row 2345"),
    ],
    ids=["columns", "missing"],
)
def test_what_a_model_cannot_be_applied_to_is_refused(table, change, message, scheduler, capsys):
    write_table(table, "t.parquet")
    run(capsys, "t.parquet", "--model", "ica.safetensors", "-q")
    table.values[change.get("holed", slice(0)), 0] = np.nan
    write_table(Table(table.values, "n", table.ids, {}, change.get("features", table.features)), "n.parquet")
    code, _, error = run(capsys, "n.parquet", "--apply", "ica.safetensors", "--out", "c.npz", "--dask", scheduler)
    assert code == 2
    assert message in error
    assert not lazy.Path("c.npz").exists()


@pytest.mark.parametrize(
    "options", [["--rows", "auto"], ["--rows", "2000", "--components", "3"], ["--no-whiten"]], ids=str
)
def test_options_mean_the_same_on_workers(table, options, scheduler, capsys):
    rng = np.random.default_rng(0)
    sources = np.column_stack([rng.laplace(size=(30000, 3)), rng.uniform(-1, 1, size=(30000, 2))])
    values = (sources - sources.mean(0)) / sources.std(0) @ np.linalg.qr(rng.normal(size=(5, 5)))[0]
    write_table(Table(values, "t"), "t.zarr")
    texts = {}
    for name, where in (("here", []), ("there", ["--dask", scheduler])):
        code, _, error = run(capsys, "t.zarr", "--out", f"{name}.npy", "--json", f"{name}.json", *options, *where)
        assert code == 0, error
        texts[name] = json.loads(lazy.Path(f"{name}.json").read_text())["numbers"]
    assert_allclose(np.load("there.npy"), np.load("here.npy"), atol=1e-6)
    assert texts["there"]["rows_used"] == texts["here"]["rows_used"]
    if "--rows" in options:
        assert texts["there"]["rows_used"] < 30000


def test_runs_are_compared_as_without(table, scheduler, capsys):
    rng = np.random.default_rng(1)
    order = rng.permutation(table.n)
    turned = table.values @ np.linalg.qr(rng.normal(size=(5, 5)))[0]
    write_table(table, "a.zarr")
    write_table(Table(turned[order], "b", table.ids[order], {}, table.features), "b.parquet")
    results = []
    for where in ([], ["--dask", scheduler]):
        code, _, error = run(capsys, "a.zarr", "b.parquet", "--nulls", 2, "--json", "c.json", *where, command="compare")
        assert code == 0, error
        results.append(json.loads(lazy.Path("c.json").read_text()))
        del results[-1]["settings"]["command"]
    assert results[0] == results[1]
    assert "the held-out error is < 0.001 % of chance" in results[0]["verdict"]  # so rows were paired by id


def test_npy_with_resamples(table, scheduler, capsys):
    np.save("t.npy", table.values.astype(np.float32))
    for name, where in (("here", []), ("there", ["--dask", scheduler])):
        code, _, error = run(
            capsys, "t.npy", "--out", f"{name}.npy", "--csv", f"{name}.csv", "--stability", "2", *where
        )
        assert code == 0, error
    assert_allclose(np.load("there.npy"), np.load("here.npy"), atol=1e-5)
    here, there = (np.genfromtxt(f"{name}.csv", delimiter=",", names=True)["median"] for name in ("here", "there"))
    assert_allclose(there, here, atol=1e-6)


def test_workers_may_be_started_for_the_command(table, capsys, monkeypatch):
    write_table(table, "t.zarr")
    monkeypatch.setattr(distributed, "LocalCluster", _small(distributed.LocalCluster))
    code, out, error = run(capsys, "t.zarr", "--dask", "local")
    assert (code, error) == (0, "")
    assert out.startswith("All 5 components are identified")


def _small(cluster):
    return lambda **options: cluster(**options, n_workers=1)


def test_only_this_process_can_reach_workers_that_it_started(monkeypatch):
    monkeypatch.setattr(distributed, "LocalCluster", _small(distributed.LocalCluster))
    with cluster_module.on_cluster("local"):
        address = distributed.default_client().scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        with pytest.raises(InputError, match="TLS needs certificates"):
            cluster_module._check_address(distributed, address)
        with pytest.raises(OSError, match=r"127\.0\.0\.1"):
            distributed.Client(address.replace("tls", "tcp"), timeout=1, set_as_default=False)


def test_without_cryptography_workers_listen_on_loopback_with_a_warning(monkeypatch):
    monkeypatch.setattr(cluster_module, "find_spec", lambda name: None)
    started = []
    monkeypatch.setattr(distributed, "LocalCluster", lambda **options: started.append(options))
    with pytest.warns(CongruenceWarning, match=r"without TLS.*pip install cryptography"):
        cluster_module._start_workers(distributed, None)
    assert started[0]["host"] == "127.0.0.1"
    assert started[0]["security"] is None


@pytest.mark.parametrize("address", ["", "foo", "tcp://", "tcp://[::1", "http://a:1", "tcp://a:b", "a:99999", "a:b:c"])
def test_what_is_not_an_address_is_refused_at_once(address):
    with pytest.raises(InputError, match="this is not an address; an address looks like"):
        cluster_module._check_address(distributed, address)


@pytest.mark.parametrize("address", ["tcp://host:8786", "10.0.0.1:8786", "tcp://[::1]:8786", "tcp://a-b.example.org:1"])
def test_addresses(address):
    cluster_module._check_address(distributed, address)


def test_a_zarr_array_is_read_in_blocks_of_its_chunks(table):
    import zarr

    zarr.create_array("t.zarr", data=table.values, chunks=(300, 2))
    found = lazy_parts(["t.zarr"])
    assert isinstance(found.values, da.Array)
    assert found.values.chunks == ((600, 600, 600, 600, 600), (5,))
    assert_array_equal(found.values.compute(), table.values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--drop-missing"], "--drop-missing cannot be used with --dask"),
        (["--cluster", "plate", "--stability", "2"], "--cluster cannot be used with --dask"),
        (["--features", "a*"], "features (--features) does not apply to files like t.zarr"),
    ],
)
def test_options_that_dask_cannot_honour_are_refused(table, arguments, message, scheduler, capsys):
    write_table(table, "t.zarr")
    code, _, error = run(capsys, "t.zarr", "--dask", scheduler, *arguments)
    assert code == 2
    assert message in error


def test_rows_that_are_not_finite_are_named(table, scheduler, capsys):
    table.values[2345, 3] = np.nan
    write_table(table, "t.zarr")
    code, _, error = run(capsys, "t.zarr", "--dask", scheduler, "--out", "c.zarr")
    assert code == 2
    assert "row 2345" in error


def test_a_file_that_workers_do_not_see_is_never_read_as_zeros(table):
    write_table(table, "t.zarr")
    found = lazy_parts(["t.zarr"]).values
    (table_folder := lazy.Path("t.zarr")).rename("elsewhere.zarr")
    with pytest.raises(TableError, match="a worker does not find .*t.zarr"):
        found.compute()
    write_table(Table(table.values[:50], "t"), table_folder)
    with pytest.raises(TableError, match=r"has the shape \(50, 5\) on a worker"):
        found.compute()


def test_a_scheduler_that_is_not_there_is_told_of_soon(table, capsys, monkeypatch):
    np.save("t.npy", table.values)
    monkeypatch.setattr(cluster_module, "PATIENCE", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        start = time.monotonic()
        code, _, error = run(capsys, "t.npy", "--dask", f"tcp://127.0.0.1:{taken.getsockname()[1]}")
    assert code == 2
    assert "no scheduler answers there within 1 seconds" in error
    assert error.count("\n") == 1
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("says", "message"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "the server there is not a dask scheduler"), (b"", "no scheduler answers")],
    ids=["a web server", "nothing"],
)
def test_something_else_than_a_scheduler_is_told_of(table, says, message, capsys, monkeypatch):
    np.save("t.npy", table.values)
    monkeypatch.setattr(cluster_module, "PATIENCE", 1)
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        thread = threading.Thread(target=_answer, args=(server, says, done))
        thread.start()
        start = time.monotonic()
        code, _, error = run(capsys, "t.npy", "--dask", f"tcp://127.0.0.1:{server.getsockname()[1]}")
        done.set()
        thread.join()
    assert code == 2
    assert message in error
    assert time.monotonic() - start < 10


def _answer(server, says, done):
    with contextlib.ExitStack() as held:
        while not done.is_set():
            with contextlib.suppress(OSError):  # nobody came, or they left again
                held.enter_context(server.accept()[0]).sendall(says)


def test_a_scheduler_without_workers_is_reported(table, local_cluster, capsys, monkeypatch):
    np.save("t.npy", table.values)
    monkeypatch.setattr(cluster_module, "PATIENCE", 4)
    with local_cluster(n_workers=0) as empty:
        code, _, error = run(capsys, "t.npy", "--dask", empty.scheduler_address)
    assert code == 2
    assert "the scheduler has no workers" in error


@pytest.mark.parametrize("module", ["distributed", "dask.array"])
def test_what_installs_dask_is_told(table, module, capsys, monkeypatch):
    np.save("t.npy", table.values)
    monkeypatch.setitem(sys.modules, module, None)
    if module == "dask.array":
        with pytest.raises(ImportError, match=r"congruence\[dask\]"):
            lazy_parts(["t.npy"])
        return
    code, _, error = run(capsys, "t.npy", "--dask", "local")
    assert code == 2
    assert "pip install 'congruence[dask]'" in error
