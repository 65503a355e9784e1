// Package reload puts the configuration file in force: at the start, and whenever it changes.
// It holds back what would take endpoints from clients that need them, and previews what
// another file would change.
package reload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/filewatch"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/providers"
)

// Options of a Configuration.
type Options struct {
	Settings   *Settings
	Path       string // of the file; empty: the configuration does not change
	Data       []byte // of the file, at the start
	Registry   *discovery.Registry
	Providers  *providers.Set
	Plan       func() *plan.Plan // in force; nil before the first
	State      State
	Group      Group // nil = this server is alone
	Trigger    *filewatch.Trigger
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// State keeps what the configuration has put in force over restarts. It returns nil without
// an error where nothing is kept.
type State interface {
	LoadPlan() (*plan.Saved, error)
	LoadConfigured() (*Configured, error)
	SaveConfigured(c Configured) error
}

// Group takes what the configuration file of a replica lists. The group decides whether it
// is in force.
type Group interface {
	Offer(c *config.Live, services []isobar.Service) error
}

// Services are what clients and checkers are connected to.
type Services interface {
	// Reauthorize checks the open streams by the rules in force.
	Reauthorize()
	// Refresh tells clients the report interval in force.
	Refresh()
}

// Clients are those that are connected.
type Clients interface {
	// Subscribers lists the clients of each service, by locality.
	Subscribers() []admin.ServiceClients
}

// Loop decides with what is in force.
type Loop interface {
	// Retime tells the loop that its timing has changed.
	Retime()
	Preview(ctx context.Context, topology *isobar.Topology, operators health.Table) (plan.Difference, error)
}

// Configuration puts configuration files in force: the one of the start, and what the file
// has later. It implements [admin.Configuration].
type Configuration struct {
	settings   *Settings
	path       string
	data       []byte
	registry   *discovery.Registry
	providers  *providers.Set
	plan       func() *plan.Plan
	state      State
	group      Group
	trigger    *filewatch.Trigger
	log        *slog.Logger
	registerer prometheus.Registerer

	held    heldServices
	refused refusedFile

	services Services
	clients  Clients
	loop     Loop
}

// refusedFile is why the configuration file, as it is now, is not in force; nil
// when it is.
type refusedFile struct{ why atomic.Pointer[string] }

func (r *refusedFile) note(err error) {
	if _, held := errors.AsType[*heldChangeError](err); err == nil || held { // what is held is told apart
		r.why.Store(nil)
		return
	}
	text := err.Error()
	r.why.Store(&text)
}

// Start puts the configuration of the start in force, with what was removed from it while
// the process was down and clients still need.
func Start(o *Options) (*Configuration, error) {
	c := &Configuration{
		settings: o.Settings, path: o.Path, data: o.Data, registry: o.Registry, providers: o.Providers,
		plan: o.Plan, state: o.State, group: o.Group, trigger: o.Trigger, log: o.Log, registerer: o.Registerer,
	}
	c.held.register(c.registerer)
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	file := c.settings.Current()
	held, waiting := c.holdAtStart()
	err := c.configureSources(c.settings.Current(), held, func() {})
	if err != nil && (waiting != nil || len(held) > 0) {
		c.log.Error("what the configuration file removed can't be held", "error", err)
		c.settings.live.Store(file)
		held, waiting = map[string]*heldService{}, nil
		err = c.configureSources(file, held, func() {})
	}
	if err != nil {
		return nil, err
	}
	digest := digestOf(c.data)
	if waiting != nil {
		c.log.Warn("configuration", "warning", waiting.Error())
		digest = "" // the file is not in force
	}
	c.wait(waiting)
	c.keep(c.settings.Current(), held, digest)
	c.share(held)
	return c, nil
}

// Serve names what a reload reports its changes to: it is built after the configuration of the
// start is in force.
func (c *Configuration) Serve(services Services, clients Clients, loop Loop) {
	c.services, c.clients, c.loop = services, clients, loop
}

// Follow puts changes of the file in force, and removes held services to which nothing is
// sent any more, until ctx ends.
func (c *Configuration) Follow(ctx context.Context, start func(func() error)) {
	if c.path == "" {
		return
	}
	start(func() error {
		c.followHeld(ctx)
		return nil
	})
	start(func() error {
		discovery.WatchFile(ctx, c.path, discovery.WatchOptions{
			Current: c.atStart(), InForce: c.inForce, Refused: c.noteFile, Trigger: c.trigger, Logger: c.log, Registerer: c.registerer,
		}, c.reload)
		return nil
	})
}

// inForce reports whether a content of the file is in force. The watcher of the file does not know
// it by itself: Reload takes contents, too.
func (c *Configuration) inForce(data []byte) bool {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	return digestOf(data) == c.held.digest
}

// atStart gives up the content of the file at the start; none if a part of it is held, so that the
// watcher of the file does not take it for the content in force.
func (c *Configuration) atStart() []byte {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	data := c.data
	c.data = nil
	if c.held.waiting != nil {
		return nil
	}
	return data
}

// reload puts a changed configuration file in force. An error keeps the old
// one; it is logged with its places by the watcher.
func (c *Configuration) reload(data []byte) error {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	return c.take(data, false)
}

// take puts a content of the configuration file in force, or says why not. What
// a change removes is held where clients still need it, unless an operator has
// confirmed the change. c.held.mu is held.
func (c *Configuration) take(data []byte, confirmed bool) error {
	defer Frugally(len(data))()
	next, warnings, err := config.Decode(c.path, data)
	if err != nil {
		return err
	}
	if err := c.lost(c.path, &next.Live); err != nil {
		return err
	}
	digest := digestOf(data)
	var held map[string]*heldService
	if !confirmed {
		if held, err = c.hold(&next.Live, digest); err != nil {
			change, _ := errors.AsType[*heldChangeError](err)
			first := !c.held.pending
			c.wait(change)
			if first {
				c.saveConfigured()
			}
			return err
		}
	}
	for i := range warnings {
		c.log.Warn("configuration", "warning", warnings[i].String())
	}
	outdated, previous := c.outdatedDefaults(&next.Live), c.settings.Current()
	c.settings.keepIdentities(next)
	before := c.settings.Policy()
	if err := c.configureSources(&next.Live, held, func() { c.settings.live.Store(&next.Live) }); err != nil {
		return fmt.Errorf("%s: %w", c.path, err)
	}
	if !reflect.DeepEqual(before, c.settings.Policy()) {
		c.services.Reauthorize()
	}
	if confirmed || removesAll(&next.Live) && removesListed(&next.Live) {
		c.held.recent = nil
	} else {
		had, has := c.contentsOf(previous), c.contentsOf(&next.Live)
		if removesAll(&next.Live) {
			had.forget(ownNames(previous))
		}
		c.held.recent.note(&had, &has, time.Now())
	}
	c.wait(nil)
	c.keep(&next.Live, held, digest)
	c.share(held)
	if outdated != "" {
		c.log.Warn("configuration", "warning", outdated)
	}
	c.services.Refresh()
	c.loop.Retime()
	if fixed := needsRestart(&c.settings.Fixed, &next.Fixed); len(fixed) > 0 {
		c.log.Warn("configuration reloaded; some settings take effect at the next start only", "settings", fixed)
	}
	return nil
}

// Reload implements [admin.Configuration]: it reads the configuration file and puts it in force; with a digest also
// what is held of the change that has it, once. Errors wrap isobar.ErrStale
// where the file is another one, and isobar.ErrInvalid where it is refused.
func (c *Configuration) Reload(confirm string) (*admin.HeldConfiguration, error) {
	if c.path == "" {
		return nil, fmt.Errorf("%w: the server was started without a configuration file", isobar.ErrInvalid)
	}
	data, err := filewatch.Read(c.path, config.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", isobar.ErrInvalid, err)
	}
	if err := c.reread(data, confirm); err != nil {
		return c.Held(), err
	}
	c.trigger.Fire() // the watcher of the file records it
	return c.Held(), nil
}

func (c *Configuration) reread(data []byte, confirm string) error {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	if confirm == "" && digestOf(data) == c.held.digest {
		return nil // it is in force
	}
	if confirm != "" {
		if digest := digestOf(data); confirm != digest {
			return fmt.Errorf("%w: the configuration file has the digest %s, not %s", isobar.ErrStale, digest, confirm)
		}
		if c.held.waiting == nil && len(c.held.services) == 0 {
			return fmt.Errorf("%w: nothing is held", isobar.ErrStale)
		}
	}
	err := c.take(data, confirm != "")
	if _, held := errors.AsType[*heldChangeError](err); err == nil || held {
		return err
	}
	return fmt.Errorf("%w: %w", isobar.ErrInvalid, err)
}

// configureSources puts the services of a configuration in force: those of the
// file and those that providers list, in one change, with those that are held. It calls
// settle at the moment at which they come into force.
func (c *Configuration) configureSources(next *config.Live, held map[string]*heldService, settle func()) error {
	services := c.withHeld(next, held)
	if c.group != nil {
		if err := c.group.Offer(next, services); err != nil {
			return err
		}
		settle()
		return nil
	}
	return c.providers.Configure(next, func(listed []discovery.Provided) error {
		_, err := c.registry.SetConfigured(services, listed, next.Network, settle)
		return err
	})
}

// withHeld lists the services of a configuration itself, with those that are held in
// their place.
func (c *Configuration) withHeld(next *config.Live, held map[string]*heldService) []isobar.Service {
	own := slices.DeleteFunc(slices.Clone(next.Services), func(s isobar.Service) bool { return held[s.Name] != nil })
	return append(own, c.specsOf(held, next)...)
}

// outdatedDefaults returns how many services the changed defaults of another file do not reach:
// services of the API keep the defaults of the time when they were written, as their readers see.
// "" if there are none.
func (c *Configuration) outdatedDefaults(next *config.Live) string {
	if reflect.DeepEqual(c.settings.defaults(), next.Defaults) {
		return ""
	}
	n := 0
	for _, o := range c.registry.Objects() {
		if o.Owner == isobar.OwnerAPI {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	if n == 1 {
		return "defaults have changed, but 1 service of the API keeps the defaults that were in force when it was written; write it again to apply the new defaults"
	}
	return fmt.Sprintf("defaults have changed, but %d services of the API keep the defaults that were in force when they were written; "+
		"write them again to apply the new defaults", n)
}

// Preview implements [admin.Configuration]: it tells what another configuration file would change. What a reload would
// refuse, it refuses.
func (c *Configuration) Preview(ctx context.Context, body []byte) (plan.Difference, []admin.Problem, error) {
	file, found, err := config.Decode("body", body)
	warnings := problems(found)
	if err != nil {
		return plan.Difference{}, warnings, inputError(err)
	}
	next := &file.Live
	if err := c.lost("body", next); err != nil {
		return plan.Difference{}, warnings, inputError(err)
	}
	services, held := c.previewHeld(next, digestOf(body))
	for _, text := range held {
		warnings = append(warnings, admin.Problem{Error: text})
	}
	provided := c.providers.Preview(next)
	topology, operators, conflicts, err := c.registry.Preview(services, provided, next.Network)
	if err != nil {
		return plan.Difference{}, warnings, inputError(err)
	}
	for _, text := range conflicts {
		warnings = append(warnings, admin.Problem{Error: text})
	}
	for i := range provided {
		for _, svc := range provided[i].Awaited {
			text := "service " + svc.Name + " of discovery." + provided[i].Owner + " has no endpoints before " + providers.Name(provided[i].Owner) +
				" lists them: its clients keep their current endpoints"
			warnings = append(warnings, admin.Problem{Error: text})
		}
	}
	if text := c.outdatedDefaults(next); text != "" {
		warnings = append(warnings, admin.Problem{Error: text})
	}
	d, err := c.loop.Preview(ctx, topology, operators)
	return d, warnings, err
}

// previewHeld lists the services that would be in force with another
// configuration, and says what would be held.
func (c *Configuration) previewHeld(next *config.Live, digest string) (services []isobar.Service, warnings []string) {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	held, err := c.hold(next, digest)
	if err != nil {
		return next.Services, []string{err.Error()}
	}
	for _, name := range slices.Sorted(maps.Keys(held)) {
		warnings = append(warnings, heldText(&admin.HeldService{Service: name, Rate: held[name].rate, Silent: held[name].silent}, digest))
	}
	return c.withHeld(next, held), warnings
}

// To take over a file needs many times its size for a moment, beside what is in force, and Go
// lets garbage grow to as much again as is in use then. From largeFile bytes on, garbage may
// only grow to frugalPercent of that, at the price of a few seconds of processor time for the
// largest files, and what was needed for the change is given back to the system.
const (
	largeFile     = 2 << 20
	frugalPercent = 50
)

// Frugally makes Go collect garbage sooner until done is called, for a file of so many bytes.
func Frugally(bytes int) (done func()) {
	if bytes < largeFile {
		return func() {}
	}
	usual := debug.SetGCPercent(frugalPercent)
	if usual < frugalPercent { // GOGC says less, or off
		debug.SetGCPercent(usual)
	}
	return func() {
		debug.SetGCPercent(usual)
		debug.FreeOSMemory()
	}
}
