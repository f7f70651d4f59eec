"""A flight comes before other work of the machine, where that is permitted, and leaves everything as it was."""

import gc
import os
import sys
import threading

import pytest

from legoswarm.deploy.punctual import punctual


def standing():
    return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), sys.getswitchinterval(), gc.isenabled()


def test_a_flight_comes_first_and_all_is_as_before():
    before, inherited = standing(), []
    with punctual() as first:
        scheduler, nice, interval, collects = standing()
        thread = threading.Thread(target=lambda: inherited.append(standing()))
        thread.start()
        thread.join()
    assert standing() == before
    assert (interval, collects) == (pytest.approx(1e-3), False)
    assert first == (scheduler == os.SCHED_RR or nice < 0)
    assert inherited == [(scheduler, nice, interval, False)]


@pytest.mark.parametrize("missing", [False, True], ids=["forbidden", "missing"])
def test_where_it_is_not_permitted_the_flight_goes_on(missing, monkeypatch):
    def forbidden(*_):
        raise PermissionError

    before = standing()
    for name in ("sched_setscheduler", "setpriority"):
        if missing:
            monkeypatch.delattr(os, name)
        else:
            monkeypatch.setattr(os, name, forbidden)
    with punctual() as first:
        assert not first
        assert not gc.isenabled()
    assert standing() == before


def test_errors_pass_through():
    before = standing()
    with pytest.raises(AttributeError, match="mine"), punctual():
        raise AttributeError("mine")
    assert standing() == before
