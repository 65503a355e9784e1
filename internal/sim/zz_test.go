package sim

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

func TestZZFleet(t *testing.T) {
	n := 3
	fmt.Sscan(os.Getenv("N"), &n)
	base := 100
	fmt.Sscan(os.Getenv("BASE"), &base)
	for _, f := range Faults() {
		if x := os.Getenv("FAULT"); x != "" && x != string(f) {
			continue
		}
		for i := range n {
			sc := FaultyFleet(uint64(base+i), f)
			at := time.Now()
			rs, err := Compare(context.Background(), sc, []Policy{Isobar(), Policies()[1], Policies()[2]}, nil)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("%-30s %3d: isobar %7.2f clair %7.2f closest %7.2f ratio %.3f failed %.2f %.2f%% peak %.2f %.2f (%v)\n", f, base+i, rs[0].MeanMS, rs[1].MeanMS, rs[2].MeanMS, rs[0].MeanMS/rs[1].MeanMS, 100*rs[0].Failed, 100*rs[1].Failed, rs[0].Peak, rs[1].Peak, time.Since(at).Round(time.Millisecond))
		}
	}
}
