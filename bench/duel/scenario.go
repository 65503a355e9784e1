package main

import (
	"time"

	"github.com/isobar-xds/isobar"
)

// zones of the fleets, in two regions. Clients are in the same zones as backends.
var zones = []isobar.Locality{
	{Region: "us-east", Zone: "a"},
	{Region: "us-east", Zone: "b"},
	{Region: "eu-west", Zone: "a"},
	{Region: "eu-west", Zone: "b"},
}

// What the backends of each zone can do, in total, and what is between zones.
const (
	backendsPerZone = 4
	concurrency     = 2 // of each backend
	serviceTime     = 100 * time.Millisecond
	capacity        = backendsPerZone * concurrency / 0.1 // requests/s of a zone
	timeout         = time.Second                         // of Envoy's route; the service declares it
	zoneLatency     = 2 * time.Millisecond                // between zones of a region, there and back
	regionLatency   = 60 * time.Millisecond               // between regions, there and back
	bodyBytes       = 2048
	service         = "shop"
)

// scenario is what happens to every fleet: demand, and what backends can do.
type scenario struct {
	Name, About string
	// Before and During are what each source sends, as parts of the capacity of its
	// zone, before and after the event.
	Before, During [4]float64
	For            time.Duration // how long During holds; 0 = to the end
	Slow           float64       // factor on the service time in the first zone after the event; 0 = 1
	Lost           bool          // the first zone refuses connections after the event
	Declared       float64       // factor on the capacity that the first zone declares; 0 = 1
}

var scenarios = []scenario{
	{
		Name: "hot-zone", About: "one zone sends 1.3 times its capacity all the time",
		Before: [4]float64{1.3, 0.5, 0.4, 0.4}, During: [4]float64{1.3, 0.5, 0.4, 0.4},
	},
	{
		Name: "step", About: "one zone goes from 0.5 to 1.4 times its capacity",
		Before: [4]float64{0.5, 0.5, 0.5, 0.5}, During: [4]float64{1.4, 0.5, 0.5, 0.5},
	},
	{
		Name: "zone-loss", About: "one zone of four refuses connections",
		Before: [4]float64{0.5, 0.5, 0.5, 0.5}, During: [4]float64{0.5, 0.5, 0.5, 0.5}, Lost: true,
	},
	{
		Name: "brown-out", About: "the backends of one zone need twice the time",
		Before: [4]float64{0.6, 0.5, 0.5, 0.5}, During: [4]float64{0.6, 0.5, 0.5, 0.5}, Slow: 2,
	},
	{
		Name: "wrong-capacity", About: "one zone declares twice its capacity, and gets 1.3 times what it has",
		Before: [4]float64{0.5, 0.4, 0.4, 0.4}, During: [4]float64{1.3, 0.4, 0.4, 0.4}, Declared: 2,
	},
	{
		Name: "flash-crowd", About: "one region sends 1.2 times its capacity for 30 s",
		Before: [4]float64{0.5, 0.5, 0.4, 0.4}, During: [4]float64{1.2, 1.2, 0.4, 0.4}, For: 30 * time.Second,
	},
}

// demand of a source so long after the event, requests/s.
func (s *scenario) demand(source int, since time.Duration) float64 {
	if since >= 0 && (s.For == 0 || since < s.For) {
		return s.During[source] * capacity
	}
	return s.Before[source] * capacity
}

// mean is the mean demand of a source in the measured time.
func (s *scenario) mean(source int, length time.Duration) float64 {
	if s.For == 0 || s.For >= length {
		return s.During[source] * capacity
	}
	part := float64(s.For) / float64(length)
	return (part*s.During[source] + (1-part)*s.Before[source]) * capacity
}

// declared is the capacity that a zone declares, requests/s.
func (s *scenario) declared(zone int) float64 {
	if zone == 0 && s.Declared > 0 {
		return s.Declared * capacity
	}
	return capacity
}

// latency is the network's, there and back.
func latency(from, to int) time.Duration {
	switch {
	case from == to:
		return 0
	case zones[from].Region == zones[to].Region:
		return zoneLatency
	}
	return regionLatency
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
