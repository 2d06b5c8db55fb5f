"""Run with `python -m unittest tests/test_retry.py` in the folder above. Shows the three numbers that technicians ask for."""

from __future__ import annotations

import unittest

from scangate.parcels import Parcel
from scangate.retry import ParkingLot, send_again, send_with_retry, waits_ms
from scangate.settings import SettingError, Settings, parse_settings
from scangate.uplink import SimulatedUplink

PARCEL = Parcel("T1", 7, 1_790_000_000_000, "PX00000007", frozenset({"top"}))


class RetryTest(unittest.TestCase):
    def test_waits_double_and_sum_to_6_2_seconds(self) -> None:
        self.assertEqual(list(waits_ms(Settings())), [200, 400, 800, 1600, 3200])
        self.assertEqual(Settings().longest_wait_ms(), 6200)

    def test_parcel_is_parked_after_the_last_retry(self) -> None:
        lot, uplink = ParkingLot(Settings()), SimulatedUplink([503] * 6)
        event = send_with_retry(PARCEL, uplink, lot, 0, sleep=lambda _: None)
        assert event is not None
        self.assertEqual(event.code.value, "ERR-9012")
        self.assertEqual(len(lot.parked), 1)

    def test_booked_by_hand_is_tried_again_although_it_should_not(self) -> None:
        lot = ParkingLot(Settings())
        lot.park(PARCEL, 0)
        events = send_again(lot, SimulatedUplink([409] * 6), 1, sleep=lambda _: None)
        self.assertEqual([event.detail for event in events], ["status 409"])

    def test_twenty_retries_are_refused(self) -> None:
        with self.assertRaises(SettingError):
            parse_settings({"max_retry_count": "20"})


if __name__ == "__main__":
    unittest.main()
