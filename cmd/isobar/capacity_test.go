package main

import (
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
)

func TestCapacityTable(t *testing.T) {
	list := admin.CapacityList{
		Service: "checkout",
		Localities: []plan.CapacityExplained{
			{
				Locality: isobar.Locality{Region: "us-east", Zone: "a"}, Declared: 1000, InUse: 480, Known: true, Low: 400, High: 560,
				Since: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Why: "212 requests in progress, 40 expected at 520/s, 24% fail",
			},
			{Locality: isobar.Locality{Region: "us-east", Zone: "b"}, InUse: 700, Why: "310/s with 6.2 requests in progress is consistent with too many capacities"},
		},
		LeftOut: []admin.LeftOutClient{{Source: isobar.Locality{Region: "us-east", Zone: "a"}, Node: "n\x1b7", Reason: "it never reports requests in progress"}},
	}
	var b strings.Builder
	if err := writeCapacity(&b, &list); err != nil {
		t.Fatal(err)
	}
	want := `LOCALITY   DECLARED  PLAN   FROM REQUESTS  SINCE                 WHY
us-east/a  1000/s    480/s  400 to 560/s   2026-03-04T05:06:07Z  212 requests in progress, 40 expected at 520/s, 24% fail
us-east/b  -         700/s  inconclusive   -                     310/s with 6.2 requests in progress is consistent with too many capacities
client n�7 in us-east/a does not count: it never reports requests in progress
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
