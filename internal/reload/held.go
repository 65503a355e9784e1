package reload

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
)

const (
	// heldRate is the least rate that holds a removed service, requests/s.
	heldRate = 0.05
	// heldIntervals is for how many report intervals nothing has to be sent to a
	// held service before it is removed.
	heldIntervals = 6
)

// heldServices are those that the configuration no longer has and clients still
// send to, and a whole change that waits for an operator.
type heldServices struct {
	mu       sync.Mutex // held while the configuration changes
	services map[string]*heldService
	digest   string // of the file in force
	waiting  *heldChangeError
	recent   recentRemovals

	servicesGauge, waitingGauge prometheus.Gauge
}

// heldService is served as before.
type heldService struct {
	spec      isobar.Service
	rate      float64   // requests/s that clients sent last
	silent    int       // clients that subscribe and report no load: what they send is not known
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
func (c *Configuration) specsOf(held map[string]*heldService, next *config.Live) []isobar.Service {
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

// hold decides what of a change has to wait: all of it, which is the error, or
// the removal of some services. c.held.mu is held.
func (c *Configuration) hold(next *config.Live, digest string) (map[string]*heldService, error) {
	out := map[string]*heldService{}
	if removesAll(next) {
		return out, nil
	}
	if what := c.removal(next, time.Now()); what != "" {
		return nil, &heldChangeError{digest: digest, what: what}
	}
	silent := c.silent()
	leaving, cluster := c.leaving(next, silent)
	if cluster > 0 {
		return nil, &heldChangeError{digest: digest, what: fmt.Sprintf("%d services of the Kubernetes cluster that clients send to", cluster)}
	}
	for _, spec := range leaving {
		held := c.held.services[spec.Name]
		if rate := c.rateOf(spec.Name); held == nil && (rate > heldRate || silent[spec.Name] > 0) {
			held = &heldService{spec: spec, rate: rate, silent: silent[spec.Name], since: time.Now()}
		}
		if held != nil {
			out[spec.Name] = held
		}
	}
	return out, nil
}

// leaving lists the services in force that another configuration does not have, or has
// without endpoints, with the endpoints that they have now, and counts those of the Kubernetes cluster
// that clients send to. Isobar can't serve the latter as before: without the cluster
// it does not learn when other Pods get their addresses.
func (c *Configuration) leaving(next *config.Live, silent map[string]int) (out []isobar.Service, cluster int) {
	stay := c.served(next)
	for _, o := range c.registry.List() {
		switch {
		case o.Owner == isobar.OwnerAPI || stay[o.Service.Name]:
		case o.Owner != isobar.OwnerKubernetes:
			if hasEndpoints(&o.Service) {
				out = append(out, o.Service)
			}
		case c.rateOf(o.Service.Name) > heldRate || silent[o.Service.Name] > 0:
			cluster++
		}
	}
	return out, cluster
}

// rateOf is what clients send to a service, requests/s. What they send against their
// shares is no demand that the plan can move, and counts here all the same.
func (c *Configuration) rateOf(service string) float64 {
	p := c.plan()
	if p == nil {
		return 0
	}
	v, ok := p.Service(service)
	if !ok || v.Result == nil {
		return 0
	}
	planned, measured := 0.0, 0.0
	for i := range v.Result.Sources {
		planned += v.Result.Sources[i].Demand
	}
	if v.Load != nil {
		for i := range v.Load.Sources {
			measured += v.Load.Sources[i].Demand
		}
	}
	return max(planned, measured)
}

// silent counts, by service, the clients that subscribe to it and report no load.
func (c *Configuration) silent() map[string]int {
	out := map[string]int{}
	if c.clients == nil {
		return out // nobody can be connected yet
	}
	for _, x := range c.clients.Subscribers() {
		out[x.Service] += x.Silent
	}
	return out
}

// keep takes note of what a change that is in force holds. c.held.mu is held.
func (c *Configuration) keep(next *config.Live, held map[string]*heldService, digest string) {
	for name, h := range held {
		if c.held.services[name] == nil {
			c.log.Warn("a service is held: it was removed from the configuration while clients send to it",
				"service", name, "rate", h.rate, "silent_clients", h.silent, "confirm", "isobar reload --confirm "+digest)
		}
	}
	stay := c.served(next)
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

// Configured are the services of the configuration as they are kept, for a service that is
// removed while the process is down.
type Configured struct {
	Services []isobar.Service `json:"services"` // sorted by name
	// Held are the services that are held, with what clients sent to them when that
	// began, requests/s: the demand of the saved plan is up to half a minute old.
	Held map[string]float64 `json:"held,omitempty"`
}

// saveConfigured keeps what the configuration has put in force, but for what a
// Kubernetes cluster lists, which changes without it. c.held.mu is held.
func (c *Configuration) saveConfigured() error {
	if c.path == "" {
		return nil
	}
	saved := Configured{Services: []isobar.Service{}}
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
	return c.state.SaveConfigured(saved)
}

// holdAtStart is hold for what was removed while the process was down.
func (c *Configuration) holdAtStart() map[string]*heldService {
	if c.path == "" || removesAll(c.settings.Current()) {
		return nil
	}
	saved, err := c.state.LoadConfigured()
	if err != nil {
		c.log.Error("could not read the previous services; removed services are not held", "error", err)
		return nil
	}
	demand, err := c.state.LoadPlan()
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
	stay := c.served(c.settings.Current())
	all := missingOf(c.servedOf(before), stay)
	out := map[string]*heldService{}
	for i := range saved.Services {
		spec := saved.Services[i]
		if _, err := c.registry.Get(spec.Name); err == nil || stay[spec.Name] || !hasEndpoints(&spec) {
			continue // the API has it, or there is nothing to hold
		}
		many := large(all, len(saved.Services))
		if rate := rates[spec.Name]; rate > heldRate || many {
			out[spec.Name] = &heldService{spec: spec, rate: rate, since: time.Now(), confirmed: many}
		}
	}
	return out
}

// followHeld removes held services to which nothing is sent any more.
func (c *Configuration) followHeld(ctx context.Context) {
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

func (c *Configuration) dropIdle(now time.Time) {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	current := c.settings.Current()
	patience := heldIntervals * current.ReportInterval
	left := map[string]*heldService{}
	var listed map[string]bool
	var silent map[string]int
	if len(c.held.services) > 0 {
		listed, silent = c.served(current), c.silent()
	}
	for name, h := range c.held.services {
		if listed[name] { // a Kubernetes cluster has it by now
			continue
		}
		rate := c.rateOf(name)
		h.silent = silent[name]
		switch {
		case rate > heldRate || h.silent > 0:
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
func (c *Configuration) noteFile(err error) {
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
func (c *Configuration) Held() *admin.HeldConfiguration {
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
		out.Services = append(out.Services, admin.HeldService{Service: name, Rate: h.rate, Silent: h.silent, Since: h.since})
	}
	return out
}

// Attention tells operators what of the configuration file is not in force: what clients
// need that it removes, or all of it, where it is refused.
func (c *Configuration) Attention() []admin.Attention {
	out := heldTroubles(c.Held())
	if why := c.refused.why.Load(); why != nil {
		out = append(out, admin.NewAttention(admin.FileRefused,
			"the configuration file is refused: %s; its previous content is in force, but not after a restart", *why).See("isobar check %s", c.path))
	}
	return out
}

func heldTroubles(held *admin.HeldConfiguration) []admin.Attention {
	if held == nil {
		return nil
	}
	var out []admin.Attention
	note := func(service, text string) {
		out = append(out, admin.NewAttention(admin.RemovalHeld, "%s", text).Of(service).See("isobar reload --confirm %s", held.Digest))
	}
	if held.Removes != "" {
		note("", (&heldChangeError{digest: held.Digest, what: held.Removes}).Error())
	}
	for _, h := range held.Services {
		note(h.Service, heldText(&h, held.Digest))
	}
	return out
}
