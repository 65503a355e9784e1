package health_test

import (
	"reflect"
	"testing"
)

// TestOverviewIsTheReportWithoutEndpoints: the status shows it, and must see what
// the report would show.
func TestOverviewIsTheReportWithoutEndpoints(t *testing.T) {
	o := atRest(t, 3, 1, zoneA, zoneB) // short of a third checker for each
	report := o.keeper.Report("")
	if len(report) == 0 || len(report[0].Endpoints) == 0 {
		t.Fatal("nothing is reported")
	}
	for i := range report {
		report[i].Endpoints = nil
	}
	if got := o.keeper.Overview(); !reflect.DeepEqual(got, report) {
		t.Errorf("got %+v, want %+v", got, report)
	}
}
