package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/plan"
)

const (
	// heldRate is the least rate that holds a removed service, requests/s.
	heldRate = 0.05
	// heldIntervals is for how many report intervals nothing has to be sent to a
	// held service before it is removed.
	heldIntervals = 6
	// fewRemoved is how many services or localities a change may always remove.
	fewRemoved = 1
	// configuredKey is where the services of the configuration are kept, for a
	// service that is removed while the process is down.
	configuredKey = "configured"
)

// heldServices are those that the configuration no longer has and clients still
// send to, and a whole change that waits for an operator.
type heldServices struct {
	mu       sync.Mutex // held while the configuration changes
	services map[string]*heldService
	digest   string // of the file in force
	waiting  *heldChangeError

	servicesGauge, waitingGauge prometheus.Gauge
}

// heldService is served as before.
type heldService struct {
	spec      isobar.Service
	rate      float64   // requests/s that clients sent last
	since     time.Time // of the removal
	idle      time.Time // since when nothing is sent; zero = something is
	confirmed bool      // only an operator removes it
}

// heldChangeError is a change of the configuration that removes so much that an
// operator has to confirm it. It is the error of who makes the change.
type heldChangeError struct {
	digest string
	what   string
}

func (c *heldChangeError) Error() string {
	return fmt.Sprintf("the change is held: it removes %s; if that is meant, isobar reload --confirm %s", c.what, c.digest)
}

// digestOf names a content of the configuration file.
func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// register adds the metrics.
func (h *heldServices) register(r prometheus.Registerer) {
	h.servicesGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "isobar_discovery_held_services", Help: "Services that the configuration no longer has, and that Isobar still serves because clients send to them.",
	})
	h.waitingGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "isobar_discovery_held_change", Help: "1 while a change of the configuration file is held because of how much it removes, else 0.",
	})
	r.MustRegister(h.servicesGauge, h.waitingGauge)
}

// show brings the metrics up to date. h.mu is held.
func (h *heldServices) show() {
	h.servicesGauge.Set(float64(len(h.services)))
	h.waitingGauge.Set(0)
	if h.waiting != nil {
		h.waitingGauge.Set(1)
	}
}

// specsOf lists held services, sorted by name. They call only what else there is.
func (c *configuration) specsOf(held map[string]*heldService, next *config.Live) []isobar.Service {
	known := c.allNames(next)
	for name := range held {
		known[name] = true
	}
	out := make([]isobar.Service, 0, len(held))
	for _, name := range slices.Sorted(maps.Keys(held)) {
		spec := held[name].spec
		spec.Calls = slices.DeleteFunc(slices.Clone(spec.Calls), func(call isobar.Call) bool { return !known[call.Service] })
		out = append(out, spec)
	}
	return out
}

// names are those of all services of a configuration.
func names(c *config.Live) map[string]bool {
	out := map[string]bool{}
	for _, list := range [][]string{ownNames(c), listedNames(c)} {
		for _, name := range list {
			out[name] = true
		}
	}
	return out
}

// allNames are names with all that the Kubernetes cluster has.
func (c *configuration) allNames(of *config.Live) map[string]bool {
	out := names(of)
	for _, name := range c.providers.ClusterNames(of) {
		out[name] = true
	}
	return out
}

// removesAll reports whether an operator wrote that there are no services.
func removesAll(c *config.Live) bool { return c.Services != nil && len(c.Services) == 0 }

// removal says how much a change of the configuration removes, where that is
// more than a third of the services, or of the localities of services, and more
// than one; "" otherwise. services and left are the names before and after.
func removal(before, after *config.Live, services, left map[string]bool) string {
	if n := missingOf(services, left); large(n, len(services)) {
		return fmt.Sprintf("%d of %d services", n, len(services))
	}
	localities, stay := localitiesOf(before), localitiesOf(after)
	own := make(map[string]bool, len(after.Services))
	for _, name := range ownNames(after) {
		own[name] = true
	}
	for name := range localities {
		if left[name] && !own[name] {
			stay[name] = localities[name] // its endpoints come from elsewhere now
		}
	}
	n, of := 0, 0
	for name, list := range localities {
		of += len(list)
		n += missingOf(list, stay[name])
	}
	if large(n, of) {
		return fmt.Sprintf("%d of the %d localities of all services", n, of)
	}
	return ""
}

// Removes implements [admin.Configuration]: it says what [removal] says of the services of
// the API.
func (c *configuration) Removes(services []isobar.Service) string {
	before := &config.Live{}
	for _, o := range c.registry.List() {
		if o.Owner == isobar.OwnerAPI {
			before.Services = append(before.Services, o.Service)
		}
	}
	after := &config.Live{Services: services}
	return removal(before, after, names(before), names(after))
}

func large(n, of int) bool { return n > fewRemoved && 3*n > of }

func missingOf[K comparable](before, after map[K]bool) (n int) {
	for x := range before {
		if !after[x] {
			n++
		}
	}
	return n
}

// localitiesOf lists where the services that the file itself has are.
func localitiesOf(c *config.Live) map[string]map[isobar.Locality]bool {
	out := map[string]map[isobar.Locality]bool{}
	for name := range names(c) {
		out[name] = map[isobar.Locality]bool{}
	}
	for i := range c.Services {
		for j := range c.Services[i].Localities {
			out[c.Services[i].Name][c.Services[i].Localities[j].Locality] = true
		}
	}
	return out
}

// hold decides what of a change has to wait: all of it, which is the error, or
// the removal of some services. c.held.mu is held.
func (c *configuration) hold(next *config.Live, digest string) (map[string]*heldService, error) {
	out := map[string]*heldService{}
	if removesAll(next) {
		return out, nil
	}
	now := c.settings.current()
	if what := removal(now, next, c.allNames(now), c.allNames(next)); what != "" {
		return nil, &heldChangeError{digest: digest, what: what}
	}
	leaving, cluster := c.leaving(next)
	if cluster > 0 {
		return nil, &heldChangeError{digest: digest, what: fmt.Sprintf("%d services of the Kubernetes cluster that clients send to", cluster)}
	}
	for _, spec := range leaving {
		held := c.held.services[spec.Name]
		if rate := c.rateOf(spec.Name); held == nil && rate > heldRate {
			held = &heldService{spec: spec, rate: rate, since: time.Now()}
		}
		if held != nil {
			out[spec.Name] = held
		}
	}
	return out, nil
}

// leaving lists the services in force that another configuration does not have,
// with the endpoints that they have now, and counts those of the Kubernetes cluster
// that clients send to. Isobar can't serve the latter as before: without the cluster
// it does not learn when other Pods get their addresses.
func (c *configuration) leaving(next *config.Live) (out []isobar.Service, cluster int) {
	stay := c.allNames(next)
	for _, o := range c.registry.List() {
		switch {
		case o.Owner == isobar.OwnerAPI || stay[o.Service.Name]:
		case o.Owner != isobar.OwnerKubernetes:
			out = append(out, o.Service)
		case c.rateOf(o.Service.Name) > heldRate:
			cluster++
		}
	}
	return out, cluster
}

// rateOf is what clients send to a service, requests/s.
func (c *configuration) rateOf(service string) (rate float64) {
	p := c.plan()
	if p == nil {
		return 0
	}
	v, ok := p.Service(service)
	if !ok || v.Result == nil {
		return 0
	}
	for i := range v.Result.Sources {
		rate += v.Result.Sources[i].Demand
	}
	return rate
}

// keep takes note of what a change that is in force holds. c.held.mu is held.
func (c *configuration) keep(next *config.Live, held map[string]*heldService, digest string) {
	for name, h := range held {
		if c.held.services[name] == nil {
			c.log.Warn("a service is held: it was removed from the configuration while clients send to it",
				"service", name, "rate", h.rate, "confirm", "isobar reload --confirm "+digest)
		}
	}
	stay := c.allNames(next)
	for name := range c.held.services {
		if held[name] == nil {
			c.log.Info("a held service was released", "service", name, "removed", !stay[name])
		}
	}
	c.held.services, c.held.digest, c.held.waiting = held, digest, nil
	c.held.show()
	if err := c.saveConfigured(); err != nil {
		c.log.Error("could not save the configured services; services removed while the process is down are not held", "error", err)
	}
}

// savedConfigured are the services of the configuration as they are kept.
type savedConfigured struct {
	Services []isobar.Service `json:"services"` // sorted by name
	// Held are the services that are held, with what clients sent to them when that
	// began, requests/s: the demand of the saved plan is up to half a minute old.
	Held map[string]float64 `json:"held,omitempty"`
}

// saveConfigured keeps what the configuration has put in force, but for what a
// Kubernetes cluster lists, which changes without it. c.held.mu is held.
func (c *configuration) saveConfigured() error {
	if c.path == "" {
		return nil
	}
	saved := savedConfigured{Services: []isobar.Service{}}
	for _, o := range c.registry.List() {
		if o.Owner != isobar.OwnerAPI && o.Owner != isobar.OwnerKubernetes {
			saved.Services = append(saved.Services, o.Service)
		}
	}
	for name, h := range c.held.services {
		if saved.Held == nil {
			saved.Held = map[string]float64{}
		}
		saved.Held[name] = h.rate
	}
	return c.kept.save(configuredKey, saved)
}

// holdAtStart is hold for what was removed while the process was down.
func (c *configuration) holdAtStart() map[string]*heldService {
	if c.path == "" || removesAll(c.settings.current()) {
		return nil
	}
	saved, err := loadJSON[savedConfigured](c.kept.store, configuredKey)
	if err != nil {
		c.log.Error("could not read the previous services; removed services are not held", "error", err)
		return nil
	}
	demand, err := loadJSON[plan.Saved](c.kept.store, planKey)
	if saved == nil || (demand == nil || err != nil) && len(saved.Held) == 0 {
		return nil // nothing is known of before; a plan that can't be read is told elsewhere
	}
	rates := map[string]float64{}
	if demand != nil && err == nil {
		for _, d := range demand.Demand() {
			rates[d.Service] += d.Rate
		}
	}
	for name, rate := range saved.Held {
		rates[name] = max(rates[name], rate)
	}
	before := &config.Live{Services: saved.Services}
	stay := c.allNames(c.settings.current())
	all := missingOf(names(before), stay)
	out := map[string]*heldService{}
	for i := range saved.Services {
		spec := saved.Services[i]
		if _, err := c.registry.Get(spec.Name); err == nil || stay[spec.Name] {
			continue // the API has it
		}
		many := large(all, len(saved.Services))
		if rate := rates[spec.Name]; rate > heldRate || many {
			out[spec.Name] = &heldService{spec: spec, rate: rate, since: time.Now(), confirmed: many}
		}
	}
	return out
}

// followHeld removes held services to which nothing is sent any more.
func (c *configuration) followHeld(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.dropIdle(time.Now())
		}
	}
}

func (c *configuration) dropIdle(now time.Time) {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	current := c.settings.current()
	patience := heldIntervals * current.ReportInterval
	left := map[string]*heldService{}
	var listed map[string]bool
	if len(c.held.services) > 0 {
		listed = c.allNames(current)
	}
	for name, h := range c.held.services {
		if listed[name] { // a Kubernetes cluster has it by now
			continue
		}
		rate := c.rateOf(name)
		switch {
		case rate > heldRate:
			h.rate, h.idle = rate, time.Time{}
		case h.idle.IsZero():
			h.idle = now
		}
		if h.confirmed || h.idle.IsZero() || now.Sub(h.idle) < patience {
			left[name] = h
		}
	}
	if len(left) == len(c.held.services) {
		return
	}
	if err := c.configureSources(current, left, func() {}); err != nil {
		c.log.Error("held services could not be removed", "error", err)
		return
	}
	c.keep(current, left, c.held.digest)
}

// noteFile takes note of why the configuration file is not in force; nil = it is.
func (c *configuration) noteFile(err error) {
	_, held := errors.AsType[*heldChangeError](err)
	if !held {
		c.held.mu.Lock()
		defer c.held.mu.Unlock()
		c.held.waiting = nil
		c.held.show()
	}
	c.refused.note(err)
}

// Held implements [admin.Configuration].
func (c *configuration) Held() *admin.HeldConfiguration {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	if c.held.waiting == nil && len(c.held.services) == 0 {
		return nil
	}
	out := &admin.HeldConfiguration{Digest: c.held.digest, Services: []admin.HeldService{}}
	if c.held.waiting != nil {
		out.Digest, out.Removes = c.held.waiting.digest, c.held.waiting.what
	}
	for _, name := range slices.Sorted(maps.Keys(c.held.services)) {
		h := c.held.services[name]
		out.Services = append(out.Services, admin.HeldService{Service: name, Rate: h.rate, Since: h.since})
	}
	return out
}
