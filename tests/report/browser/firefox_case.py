"""The live pages of models once more, in Firefox: what live_case, live_own_case and the three others try in Chromium."""

import unittest

import firefox
import live_case
import live_checkpoints_case
import live_experiments_case
import live_labs_case
import live_own_case


class InFirefox:
    @staticmethod
    def start():
        return firefox.Firefox(firefox.find())

    @classmethod
    def setUpClass(cls):
        if not firefox.find():
            raise unittest.SkipTest("no firefox here (Debian: apt-get install firefox-esr)")
        super().setUpClass()


class LiveInFirefox(InFirefox, live_case.Live):
    pass


class OwnInFirefox(InFirefox, live_own_case.LiveOwn):
    # WebDriver BiDi drops no files.
    test_the_files_of_a_folder_are_dropped = test_a_folder_is_told_to_be_one = None


class CheckpointsInFirefox(InFirefox, live_checkpoints_case.LiveCheckpoints):
    pass


class ExperimentsInFirefox(InFirefox, live_experiments_case.LiveExperiments):
    pass


class LabsInFirefox(InFirefox, live_labs_case.LiveLabs):
    pass
