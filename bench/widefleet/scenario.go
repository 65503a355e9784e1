package main

import (
	"bytes"
	"fmt"
	"time"
)

const (
	tick    = 5 * time.Second
	turns   = 20 // ticks from one change of a service to its next: 5% change per tick
	regions = 20
	perPart = 10 // localities of a service
	servers = 3  // endpoints of a service in a locality
	maxRate = 1000
	clients = 2 // of a service in a locality
)

// scenario writes the fleet as a scenario file. Each service has its turn of one
// tick in twenty, in which its demand from each of its localities goes up or
// down by up to a third.
func scenario(o *options) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "title: %d services in %d localities, 5%% of which change per tick\nlength: %v\nnetwork:\n  latency_ms:\n",
		o.services, o.places, o.length)
	for i := range regions {
		for j := range i {
			fmt.Fprintf(&b, "    - {from: r%02d, to: r%02d, ms: %d}\n", i, j, 10+(i*7+j*13)%120)
		}
	}
	b.WriteString("services:\n")
	for i := range o.services {
		fmt.Fprintf(&b, "  - name: s%04d\n    localities:\n", i)
		for j := range perPart {
			fmt.Fprintf(&b, "      - {locality: %s, endpoints: %d, max_rate: %d, concurrency: 40}\n", place(o, i, j), servers, maxRate)
		}
	}
	b.WriteString("demand:\n")
	for i := range o.services {
		phase := time.Duration(i%turns) * tick
		for j := range perPart {
			amplitude := 0.1 + float64((i*7+j*3)%24)/100
			at := phase
			if (i+j)%2 == 1 {
				at += turns * tick // up where the others go down
			}
			fmt.Fprintf(&b, "  - {service: s%04d, from: %s, rate: %d, clients: %d, shape: [square: {period: %v, at: %v, low: %.2f, high: %.2f}]}\n",
				i, place(o, i, j), 450+(i*11+j*53)%400, clients, 2*turns*tick, at, 1-amplitude, 1+amplitude)
		}
	}
	return b.Bytes()
}

// place is one of the ten localities of a service.
func place(o *options, service, index int) string {
	at := (service*17 + index*23) % o.places
	return fmt.Sprintf("r%02d/z%03d", at%regions, at)
}
