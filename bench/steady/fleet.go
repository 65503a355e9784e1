package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isobar-xds/isobar"
	testfleet "github.com/isobar-xds/isobar/internal/fleet"
)

// The fleet.
const (
	interval       = 5 * time.Second // of reports and decisions
	zones          = 10
	perZone        = 10  // endpoints of a service
	endpointRate   = 100 // requests/s that one can serve
	utilization    = 0.7 // where demand is down; 0.8 on average
	checkedOfTen   = 1   // services with health checks
	changedPercent = 1   // services in an interval
	demandStep     = 1.3 // factor by which demand changes, up and down in turn
)

func zoneOf(i int) isobar.Locality {
	return isobar.Locality{Region: fmt.Sprintf("region-%d", i/3), Zone: fmt.Sprintf("zone-%d", i)}
}

func allZones() []isobar.Locality {
	out := make([]isobar.Locality, zones)
	for i := range out {
		out[i] = zoneOf(i)
	}
	return out
}

// fleet is what is served, and how it changes.
type fleet struct {
	opts   *options
	server *server
	began  time.Time

	changes, changesFailed atomic.Int64
}

// The body of a service, as the admin API takes it.
type (
	serviceBody struct {
		Name         string         `json:"name"`
		Localities   []localityBody `json:"localities"`
		HealthChecks []checkBody    `json:"health_checks,omitempty"`
	}
	localityBody struct {
		Locality  string         `json:"locality"`
		Endpoints []endpointBody `json:"endpoints"`
	}
	endpointBody struct {
		Address string  `json:"address"`
		MaxRate float64 `json:"max_rate"`
	}
	checkBody struct {
		HTTP     httpBody `json:"http"`
		Interval string   `json:"interval"`
	}
	httpBody struct {
		Path string `json:"path"`
	}
)

func serviceName(s int) string { return fmt.Sprintf("service-%04d", s) }

// service describes a service after a number of changes: each gives its first
// endpoint a new address.
func service(s, changes int) serviceBody {
	out := serviceBody{Name: serviceName(s), Localities: make([]localityBody, zones)}
	for z := range out.Localities {
		l := &out.Localities[z]
		l.Locality = zoneOf(z).String()
		for e := range perZone {
			l.Endpoints = append(l.Endpoints, endpointBody{fmt.Sprintf("10.%d.%d.%d:%d", s/250, s%250, z, 8000+e), endpointRate})
		}
	}
	if changes > 0 {
		out.Localities[0].Endpoints[0].Address = fmt.Sprintf("10.%d.%d.0:%d", s/250, s%250, 9000+changes%1000)
	}
	if s%10 < checkedOfTen {
		out.HealthChecks = []checkBody{{HTTP: httpBody{"/healthz"}, Interval: interval.String()}}
	}
	return out
}

// publish hands all services to the server.
func (f *fleet) publish(ctx context.Context) error {
	f.began = time.Now()
	all := make([]serviceBody, f.opts.services)
	for s := range all {
		all[s] = service(s, 0)
	}
	body, err := json.Marshal(map[string]any{"services": all})
	if err != nil {
		return err
	}
	_, err = f.server.Do(ctx, http.MethodPut, "/v1/services", body)
	return err
}

// perInterval is how many services change in an interval.
func (f *fleet) perInterval() int { return max(1, f.opts.services*changedPercent/100) }

// change exchanges endpoints, one service after the other, evenly over time.
func (f *fleet) change(ctx context.Context, until time.Time) {
	ticker := time.NewTicker(interval / time.Duration(f.perInterval()))
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if now.After(until) {
				return
			}
		}
		s := n * 37 % f.opts.services // neighbours share clients
		body, err := json.Marshal(service(s, 1+n/f.opts.services))
		if err == nil {
			_, err = f.server.Do(ctx, http.MethodPut, "/v1/services/"+serviceName(s), body)
		}
		if err != nil && ctx.Err() == nil {
			f.changesFailed.Add(1)
		}
		f.changes.Add(1)
	}
}

// rateOf is the load of a client on a service, requests/s: clients differ, and
// services change it in turn, half of them up when the others go down, so that
// the fleet as a whole carries the same at any time.
func (f *fleet) rateOf(client int, service string, now time.Time) float64 {
	_, digits, _ := strings.Cut(service, "-")
	s, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	perClient := float64(f.opts.services) * zones * perZone * endpointRate * utilization / float64(f.opts.clients*f.opts.subscribe)
	rate := perClient * (1 + 0.5*math.Sin(float64(3*client+s)))
	groups := (f.opts.services + f.perInterval() - 1) / f.perInterval()
	group := s / f.perInterval()
	if turns := int(now.Sub(f.began)/interval) - group + groups; (turns/groups+group)%2 == 1 {
		rate *= demandStep
	}
	return rate
}

// startCheckers connects the health checkers; all their probes pass.
func (f *fleet) startCheckers(ctx context.Context, running *sync.WaitGroup) error {
	for i := range f.opts.checkers {
		conn, err := grpc.NewClient("passthrough:///"+f.server.clients,
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig())
		if err != nil {
			return err
		}
		c, err := testfleet.NewEnvoyChecker(testfleet.EnvoyCheckerOptions{
			Conn: conn, ID: fmt.Sprintf("checker-%d", i), Locality: zoneOf(i % zones), Seed: uint64(i),
		})
		if err != nil {
			return err
		}
		running.Go(func() {
			_ = c.Run(ctx) // what it would crash on shows as a missing checker
			_ = conn.Close()
		})
	}
	return nil
}
