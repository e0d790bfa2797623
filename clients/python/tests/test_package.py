from importlib.resources import files


def test_the_package_says_that_it_is_typed():
    assert files("queueops_client").joinpath("py.typed").is_file()
