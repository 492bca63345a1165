"""Simulated pumps of four plants: one dominating state and rare faults, each known at some plants only."""

from dataclasses import dataclass

import numpy as np

from koncord._validation import check_count
from koncord.types import FloatArray, IntArray

PLANTS = ("east", "north", "south", "west")
SENSORS = (
    "flow_m3h",
    "head_m",
    "power_kw",
    "suction_bar",
    "vibration_mm_s",
    "bearing_c",
    "current_a",
    "noise_db",
)
# Normal operation: mean, change with the load (from 0 to 1), and noise of each sensor.
NORMAL = np.array([180.0, 42.0, 30.0, 1.2, 2.8, 61.0, 55.0, 78.0])
BY_LOAD = np.array([40.0, -6.0, 8.0, -0.15, 0.3, 4.0, 12.0, 1.5])
NOISE = np.array([4.0, 0.8, 0.8, 0.04, 0.25, 1.2, 1.4, 0.9])
# What a fault adds, in units of the noise.
FAULTS = {
    "cavitation": {"suction_bar": -6.0, "vibration_mm_s": 4.0, "noise_db": 6.0},
    "bearing wear": {"vibration_mm_s": 5.0, "bearing_c": 7.0},
    "clogged impeller": {"flow_m3h": -7.0, "head_m": -5.0},
    "leaking seal": {"flow_m3h": -4.0, "power_kw": 6.0, "suction_bar": 5.0},
}
STATES = ("normal", *FAULTS)
# Faults that each plant has met: no plant knows all, no fault is known to all.
MET = {"east": (1, 2), "north": (1, 3), "south": (2, 3, 4), "west": (1, 4)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pumps:
    """Readings of one plant."""

    X: FloatArray  # (n_rows, 8), columns SENSORS
    state: IntArray  # (n_rows,), position in STATES


def pumps(n_rows: int = 2000, *, fault_rows: int = 60, seed: int = 0) -> dict[str, Pumps]:
    """Sensor readings of the pumps of four plants.

    Parameters
    ----------
    n_rows : int, default 2000
        Readings at each plant.
    fault_rows : int, default 60
        Of these, readings during each fault that the plant has met.
    seed : int, default 0
        Of the draw.

    Returns
    -------
    dict of str to Pumps
        By plant. Sensors follow the load, which varies; a fault moves two or three of them by 4 to 7 times their noise.

    Examples
    --------
    >>> east = pumps()["east"]
    >>> east.X.shape, np.bincount(east.state).tolist()
    ((2000, 8), [1880, 60, 60])
    """
    n_rows = check_count("n_rows", n_rows, owner="pumps")
    most = n_rows // max(map(len, MET.values()))
    fault_rows = check_count("fault_rows", fault_rows, owner="pumps")
    if fault_rows > most:
        raise ValueError(
            f"'fault_rows' of pumps must be at most {most} (a third of the rows, as a plant has met up to 3 faults); "
            f"got {fault_rows}."
        )
    rng = np.random.default_rng(seed)
    shifts = np.array([[FAULTS.get(state, {}).get(sensor, 0.0) for sensor in SENSORS] for state in STATES])
    plants = {}
    for plant in PLANTS:
        state = np.zeros(n_rows, dtype=np.int64)
        state[: fault_rows * len(MET[plant])] = np.repeat(MET[plant], fault_rows)
        state = rng.permutation(state)
        load = rng.beta(4, 4, size=(n_rows, 1)) - 0.5
        noise = rng.normal(size=(n_rows, len(SENSORS))) + shifts[state]
        plants[plant] = Pumps(X=NORMAL + BY_LOAD * load + NOISE * noise, state=state)
    return plants
