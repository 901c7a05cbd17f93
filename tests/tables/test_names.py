from congruence.tables import unique_names


def test_runs_are_named_by_the_stem_of_their_file():
    assert unique_names(["runs/a.npy", "b.csv.gz", "c.zarr"]) == ["a", "b", "c"]


def test_equal_stems_get_their_folder():
    assert unique_names(["seed0/latents.parquet", "seed1/latents.parquet", "other.npy"]) == [
        "seed0/latents",
        "seed1/latents",
        "other",
    ]


def test_folders_are_added_until_names_differ():
    assert unique_names(["/r/a/x/z.npy", "/r/b/x/z.npy"]) == ["a/x/z", "b/x/z"]
    assert unique_names(["z.npy", "s/z.npy"]) == ["z", "s/z"]


def test_files_that_differ_in_suffix_alone_keep_it():
    assert unique_names(["s/a.npy", "s/a.csv"]) == ["a.npy", "a.csv"]
    assert unique_names(["s/a.npy", "s/a.csv", "t/a.npy"]) == ["a.npy", "a.csv", "t/a"]


def test_the_same_path_again_is_counted():
    assert unique_names(["a.npy", "a.npy", "b.npy", "a.npy"]) == ["a", "a#2", "b", "a#3"]
