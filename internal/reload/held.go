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
	"github.com/isobar-xds/isobar/internal/plural"
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
	digest   string           // of the file in force
	waiting  *heldChangeError // as the file is now; nil while it is refused for another reason
	// pending says that a change was held, and none has been taken since.
	pending bool
	recent  recentRemovals

	servicesGauge, waitingGauge prometheus.Gauge
	changes                     prometheus.Counter
	counted                     string // digest of the change that was counted last; empty once another content is in force
}

// heldService is served as before.
type heldService struct {
	spec      isobar.Service
	rate      float64   // requests/s that clients sent last
	silent    int       // clients that subscribe and report no load: what they send is not known
	since     time.Time // of the removal
	idle      time.Time // since when nothing is sent; zero = something is
	confirmed bool      // only an operator removes it
	listed    bool      // another control plane or DNS listed it
}

// heldChangeError is a change of the configuration that removes so much that an
// operator has to confirm it. It is the error of who makes the change.
type heldChangeError struct {
	digest string
	what   string
}

func (c *heldChangeError) Error() string {
	return fmt.Sprintf("the change is held: it removes %s; to apply it, run isobar reload --confirm %s", c.what, c.digest)
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
	h.changes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "isobar_discovery_held_changes_total", Help: "Changes of the configuration file that were held because of how much they remove.",
	})
	r.MustRegister(h.servicesGauge, h.waitingGauge, h.changes)
}

// show brings the metrics up to date. h.mu is held.
func (h *heldServices) show() {
	h.servicesGauge.Set(float64(len(h.services)))
	h.waitingGauge.Set(0)
	if h.waiting != nil {
		h.waitingGauge.Set(1)
	}
}

// specsOf lists held services, sorted by name. They call only what else there is, and nothing
// if their calls would form a cycle with those of the other services, because no configuration
// may have one. Calls only tell where demand will come from.
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
	if len(out) > 0 && config.CheckCalls(append(c.othersThan(held, next), out...)) != nil {
		for i := range out {
			out[i].Calls = nil
		}
	}
	return out
}

// othersThan lists the services that a configuration leaves in force beside those that are held.
func (c *Configuration) othersThan(held map[string]*heldService, next *config.Live) []isobar.Service {
	out := slices.Clone(next.Services)
	for _, o := range c.registry.Objects() {
		if o.Owner != isobar.OwnerFile {
			out = append(out, o.Service)
		}
	}
	return slices.DeleteFunc(out, func(s isobar.Service) bool { return held[s.Name] != nil })
}

// hold decides what of a change has to wait: all of it, which is the error, or
// the removal of some services. c.held.mu is held.
func (c *Configuration) hold(next *config.Live, digest string) (map[string]*heldService, error) {
	out := map[string]*heldService{}
	if what := c.removal(next, time.Now()); what != "" {
		return nil, &heldChangeError{digest: digest, what: what}
	}
	_, silent := c.subscribers()
	leaving, cluster := c.leaving(next, silent)
	if cluster > 0 {
		return nil, &heldChangeError{digest: digest, what: plural.Count(cluster, "service", "services") + " of the Kubernetes cluster that clients send to"}
	}
	for i := range leaving {
		spec := leaving[i].Service
		held := c.held.services[spec.Name]
		if rate := c.rateOf(spec.Name); held == nil && (rate > heldRate || silent[spec.Name] > 0) {
			held = &heldService{spec: spec, rate: rate, silent: silent[spec.Name], since: time.Now(), listed: c.discovered(&leaving[i])}
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
// it does not learn when other Pods get their addresses. With services: [] those of the file
// itself are not listed: an operator wrote that there are none.
func (c *Configuration) leaving(next *config.Live, silent map[string]int) (out []isobar.Object, cluster int) {
	stay := c.served(next)
	for _, o := range c.registry.Objects() {
		switch {
		case o.Owner == isobar.OwnerAPI || stay[o.Service.Name] || removesAll(next) && (removesListed(next) || !c.discovered(o)):
		case o.Owner != isobar.OwnerKubernetes:
			if hasEndpoints(&o.Service) {
				out = append(out, *o)
			}
		case c.rateOf(o.Service.Name) > heldRate || silent[o.Service.Name] > 0:
			cluster++
		}
	}
	return out, cluster
}

// discovered reports whether another control plane or DNS lists a service, or did so before it
// was held.
func (c *Configuration) discovered(o *isobar.Object) bool {
	held := c.held.services[o.Service.Name]
	return o.Owner != isobar.OwnerFile || held != nil && held.listed
}

// rateOf is what clients send to a service, requests/s. What they send against their
// shares is no demand that the plan can move, and counts here nevertheless.
func (c *Configuration) rateOf(service string) float64 {
	p := c.plan()
	if p == nil {
		return 0
	}
	v, ok := p.Service(service)
	if !ok {
		return 0
	}
	planned, measured := 0.0, 0.0
	if v.Result != nil {
		for i := range v.Result.Sources {
			planned += v.Result.Sources[i].Demand
		}
	}
	if v.Load != nil {
		for i := range v.Load.Sources {
			measured += v.Load.Sources[i].Demand
		}
	}
	return max(planned, measured)
}

// subscribers counts, by service, the clients that subscribe to it, and those of them that
// report no load. A replica of a group knows its own clients only, and replicas that hold
// different services would not agree on any file: there it counts none.
func (c *Configuration) subscribers() (all, silent map[string]int) {
	all, silent = map[string]int{}, map[string]int{}
	if c.clients == nil || c.group != nil { // without clients nobody can be connected yet
		return all, silent
	}
	for _, x := range c.clients.Subscribers() {
		all[x.Service] += x.Streams
		silent[x.Service] += x.Silent
	}
	return all, silent
}

// keep records the removals that a change in force holds. c.held.mu is held.
func (c *Configuration) keep(next *config.Live, held map[string]*heldService, digest string) {
	confirm := digest
	if c.held.waiting != nil {
		confirm = c.held.waiting.digest
	}
	for name, h := range held {
		if c.held.services[name] == nil {
			c.log.Warn("a service is held: it was removed from the configuration while clients send to it",
				"service", name, "rate", h.rate, "silent_clients", h.silent, "confirm", "isobar reload --confirm "+confirm)
		}
	}
	stay := c.served(next)
	for name := range c.held.services {
		if held[name] == nil {
			c.log.Info("a held service was released", "service", name, "removed", !stay[name])
		}
	}
	c.held.services, c.held.digest = held, digest
	c.held.show()
	c.saveConfigured()
}

// wait records a held change; nil = none is, since another one is in force. c.held.mu is held.
func (c *Configuration) wait(change *heldChangeError) {
	c.held.waiting, c.held.pending = change, change != nil
	c.held.count(change)
	c.held.show()
}

// count counts a held change once: the file is read again and again while it is held. h.mu is held.
func (h *heldServices) count(change *heldChangeError) {
	switch {
	case change == nil:
		h.counted = ""
	case change.digest != h.counted:
		h.counted = change.digest
		h.changes.Inc()
	}
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

// settling is for how long it may not be known of a client that comes back whether it
// reports load.
const settling = 30 * time.Second

func (c *Configuration) dropIdle(now time.Time) {
	c.held.mu.Lock()
	none := len(c.held.services) == 0
	c.held.mu.Unlock()
	if none {
		return
	}
	subscribed, silent := c.subscribers()
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	current := c.settings.Current()
	left := map[string]*heldService{}
	listed := c.served(current)
	for name, h := range c.held.services {
		if listed[name] { // a Kubernetes cluster has it by now
			continue
		}
		patience := heldIntervals * current.ReportInterval
		if subscribed[name] > 0 {
			patience = max(patience, settling)
		}
		h.follow(c.rateOf(name), silent[name], now)
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

// follow records the requests of clients to a held service.
func (h *heldService) follow(rate float64, silent int, now time.Time) {
	h.silent = silent
	switch {
	case rate > heldRate || silent > 0:
		h.rate, h.idle = rate, time.Time{}
	case h.idle.IsZero():
		h.idle = now
	}
}

// noteFile records why the configuration file is not in force; nil = it is. A file that is
// refused after one that was held does not reduce the held removals.
func (c *Configuration) noteFile(err error) {
	_, held := errors.AsType[*heldChangeError](err)
	if !held {
		c.held.mu.Lock()
		defer c.held.mu.Unlock()
		c.held.waiting = nil
		if err == nil && c.held.pending { // the content in force is back
			c.held.pending = false
			c.held.count(nil)
			c.saveConfigured()
		}
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
		out.Services = append(out.Services, admin.HeldService{Service: name, Rate: h.rate, Silent: h.silent, Since: h.since, Confirm: h.confirmed})
	}
	return out
}

// Attention tells operators what of the configuration file is not in force: what clients
// need that it removes, or all of it, where it is refused.
func (c *Configuration) Attention() []admin.Attention {
	out := heldTroubles(c.Held())
	if why := c.refused.why.Load(); why != nil {
		out = append(out, admin.NewAttention(admin.FileRefused,
			"Isobar refuses the configuration file: %s; the previous content stays in force until a restart", *why).See("isobar check %s", c.path))
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

// heldText says that a service is held, and what to do.
func heldText(h *admin.HeldService, digest string) string {
	text := fmt.Sprintf("service %s: held: it was removed from the configuration while clients send %.4g requests/s; Isobar serves it "+
		"until they stop, or until isobar reload --confirm %s", h.Service, h.Rate, digest)
	if h.Confirm {
		text = fmt.Sprintf("service %s: held: the held change removes it; Isobar serves it, even without load, "+
			"until isobar reload --confirm %s; clients send %.4g requests/s", h.Service, digest, h.Rate)
	}
	switch {
	case h.Silent == 1:
		text += "; 1 client subscribes to it and reports no load, so its load is unknown"
	case h.Silent > 1:
		text += fmt.Sprintf("; %d clients subscribe to it and report no load, so their load is unknown", h.Silent)
	}
	return text
}
