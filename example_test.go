package isobar_test

import (
	"errors"
	"fmt"

	"github.com/isobar-xds/isobar"
)

// The most specific configured pair wins; what is not configured has defaults.
func ExampleNetwork_Latency() {
	network, err := isobar.NewNetwork([]isobar.LatencyRule{
		{From: isobar.MustLocality("us-east"), To: isobar.MustLocality("eu-west"), MS: 80},
		{From: isobar.MustLocality("us-east/a"), To: isobar.MustLocality("eu-west"), MS: 74},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, pair := range [][2]string{{"us-east/b", "eu-west/a"}, {"us-east/a", "eu-west/a"}, {"us-east/a", "us-east/b"}, {"us-east/a", "ap-south/a"}} {
		ms, assumed := network.Latency(isobar.MustLocality(pair[0]), isobar.MustLocality(pair[1]))
		fmt.Printf("%s to %s: %g ms, assumed: %t\n", pair[0], pair[1], ms, assumed)
	}
	// Output:
	// us-east/b to eu-west/a: 80 ms, assumed: false
	// us-east/a to eu-west/a: 74 ms, assumed: false
	// us-east/a to us-east/b: 1 ms, assumed: false
	// us-east/a to ap-south/a: 100 ms, assumed: true
}

func ExampleParseLocality() {
	l, err := isobar.ParseLocality("us-east/b/rack-1")
	fmt.Println(l.Region, l.Zone, l.SubZone, err)
	_, err = isobar.ParseLocality("us-east//rack-1")
	fmt.Println(errors.Is(err, isobar.ErrBadLocality))
	// Output:
	// us-east b rack-1 <nil>
	// true
}
