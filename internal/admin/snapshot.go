package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// SnapshotFormat is the version of [Snapshot] that this program writes and reads.
const SnapshotFormat = 1

// Snapshot is what operators wrote: everything that neither the configuration file nor
// the clients can give a server again.
type Snapshot struct {
	Format   int                     `json:"format"`
	Made     time.Time               `json:"made"`
	Plan     string                  `json:"plan,omitempty"` // version in force at the time
	Services []isobar.Service        `json:"services"`       // of the admin API, sorted by name
	Health   []isobar.HealthOverride `json:"health"`         // set by operators, sorted by service and address
	Paused   plan.Pauses             `json:"paused"`
}

// ReadSnapshot reads a snapshot that was saved.
func ReadSnapshot(data []byte) (Snapshot, error) {
	var s Snapshot
	var version struct { // before fields that this program does not know are refused
		Format int `json:"format"`
	}
	if json.Unmarshal(data, &version) == nil && version.Format > SnapshotFormat {
		return s, fmt.Errorf("the snapshot has format %d, and this program reads up to %d: use the version of Isobar that saved it, or a newer one",
			version.Format, SnapshotFormat)
	}
	switch err := decodeOne(data, &s); {
	case errors.Is(err, io.EOF):
		return s, errors.New("not a snapshot: it is empty")
	case err != nil:
		return s, fmt.Errorf("not a snapshot: %w", err)
	case s.Format < 1:
		return s, errors.New("not a snapshot: it has no format")
	}
	names := map[string]bool{}
	for i := range s.Services {
		name := s.Services[i].Name
		if name == "" || names[name] {
			return s, fmt.Errorf("services[%d] of the snapshot is called %q, which is empty or taken", i, name)
		}
		names[name] = true
	}
	return s, nil
}

// Snapshot asks for everything that operators wrote.
func (r *Remote) Snapshot(ctx context.Context) (Snapshot, error) {
	out := Snapshot{Format: SnapshotFormat, Made: time.Now().UTC().Truncate(time.Second), Services: []isobar.Service{}, Health: []isobar.HealthOverride{}}
	list, err := r.services(ctx)
	if err != nil {
		return out, err
	}
	for i := range list {
		if list[i].Owner == isobar.OwnerAPI {
			out.Services = append(out.Services, list[i].Service)
		}
		for _, o := range list[i].HealthOverrides {
			o.Service = list[i].Service.Name
			out.Health = append(out.Health, o)
		}
	}
	status, err := r.Status(ctx)
	out.Paused, out.Plan = status.Paused, status.Version
	return out, err
}

func (r *Remote) services(ctx context.Context) ([]ServiceObject, error) {
	var list ServiceList
	err := r.get(ctx, "/v1/services", nil, &list)
	return list.Services, err
}

// Restoration is what makes the state of a server that of a snapshot.
type Restoration struct {
	Put     []string                `json:"put"`     // services that are created or replaced, sorted
	Deleted []string                `json:"deleted"` // services of the API that the snapshot lacks, sorted
	Foreign []string                `json:"foreign"` // services of the snapshot that now have another owner, as NAME (OWNER); they stay as they are
	Gone    []string                `json:"gone"`    // marks of endpoints that no service has, as SERVICE ADDRESS; they are left out
	Health  []isobar.HealthOverride `json:"health"`  // marks to set; status unknown takes one back
	Pause   plan.Pauses             `json:"pause"`
	Resume  []string                `json:"resume"` // services; "" = the pause of all

	Refused []Refused `json:"refused,omitempty"` // what the server refused, or what a dry run shows that it would refuse; not in the lists above
	// Unchecked are drains of which a dry run can't tell whether the server would refuse them, as SERVICE ADDRESS.
	Unchecked []string `json:"unchecked,omitempty"`

	services []isobar.Service // of the API, afterwards
}

// Refused is an entry of a snapshot that the server does not take.
type Refused struct {
	What string `json:"what"` // a sentence's subject, such as the health of an endpoint
	Why  string `json:"why"`
}

// Empty reports whether nothing has to change.
func (r *Restoration) Empty() bool {
	return len(r.Put)+len(r.Deleted)+len(r.Health)+len(r.Pause)+len(r.Resume) == 0
}

// Restoration returns what would make the state of the server that of the snapshot. With
// prune it takes back what the snapshot lacks; otherwise it only adds and replaces.
func (r *Remote) Restoration(ctx context.Context, s *Snapshot, prune bool) (Restoration, error) {
	var out Restoration
	have, err := r.services(ctx)
	if err != nil {
		return out, err
	}
	status, err := r.Status(ctx)
	if err != nil {
		return out, err
	}
	objects := map[string]*ServiceObject{}
	for i := range have {
		objects[have[i].Service.Name] = &have[i]
	}
	if err := out.restoreServices(s.Services, objects, prune); err != nil {
		return out, err
	}
	out.restoreHealth(s.Health, objects, prune)
	out.restorePauses(s.Paused, status.Paused, prune)
	return out, nil
}

func (r *Restoration) restoreServices(want []isobar.Service, have map[string]*ServiceObject, prune bool) error {
	after := map[string]isobar.Service{}
	for name, o := range have {
		if o.Owner == isobar.OwnerAPI {
			after[name] = o.Service
		}
	}
	known := map[string]bool{}
	for i := range want {
		name := want[i].Name
		known[name] = true
		if o := have[name]; o != nil && o.Owner != isobar.OwnerAPI {
			r.Foreign = append(r.Foreign, fmt.Sprintf("%s (%s)", name, o.Owner))
			continue
		}
		same, err := sameJSON(after[name], want[i])
		if err != nil {
			return err
		}
		if !same {
			r.Put = append(r.Put, name)
			after[name] = want[i]
		}
	}
	for name := range after {
		if prune && !known[name] {
			r.Deleted = append(r.Deleted, name)
		}
	}
	for _, name := range r.Deleted {
		delete(after, name)
	}
	slices.Sort(r.Put)
	slices.Sort(r.Deleted)
	slices.Sort(r.Foreign)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		r.services = append(r.services, after[name])
	}
	return nil
}

func sameJSON(a, b isobar.Service) (bool, error) {
	x, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	y, err := json.Marshal(b)
	return bytes.Equal(x, y), err
}

func (r *Restoration) restoreHealth(want []isobar.HealthOverride, have map[string]*ServiceObject, prune bool) {
	endpoint := func(service, address string) bool {
		for i := range r.services {
			if r.services[i].Name == service {
				_, _, found := r.services[i].Endpoint(address)
				return found
			}
		}
		if o := have[service]; o != nil && o.Owner != isobar.OwnerAPI {
			_, _, found := o.Service.Endpoint(address)
			return found
		}
		return false
	}
	type key struct{ service, address string }
	now, known := map[key]isobar.HealthStatus{}, map[key]bool{}
	for name, o := range have {
		for _, h := range o.HealthOverrides {
			now[key{name, h.Address}] = h.Status
		}
	}
	for _, h := range want {
		k := key{h.Service, h.Address}
		known[k] = true
		switch status, set := now[k]; {
		case !endpoint(h.Service, h.Address):
			r.Gone = append(r.Gone, h.Service+" "+h.Address)
		case !set || status != h.Status:
			r.Health = append(r.Health, isobar.HealthOverride{Service: h.Service, Address: h.Address, Status: h.Status, Who: h.Who, Reason: h.Reason})
		}
	}
	for k := range now {
		if prune && !known[k] && endpoint(k.service, k.address) {
			r.Health = append(r.Health, isobar.HealthOverride{Service: k.service, Address: k.address, Status: isobar.Unknown})
		}
	}
	slices.Sort(r.Gone)
	slices.SortFunc(r.Health, func(a, b isobar.HealthOverride) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Address, b.Address))
	})
}

func (r *Restoration) restorePauses(want, have plan.Pauses, prune bool) {
	paused := func(list plan.Pauses, service string) bool {
		return slices.ContainsFunc(list, func(p plan.Pause) bool { return p.Service == service })
	}
	for _, p := range want {
		if !paused(have, p.Service) {
			r.Pause = append(r.Pause, p)
		}
	}
	for _, p := range have {
		if prune && !paused(want, p.Service) {
			r.Resume = append(r.Resume, p.Service)
		}
	}
	slices.Sort(r.Resume)
}

// Restore carries a restoration out. It writes all services at once, then marks, then
// pauses. What the server refuses moves to what.Refused. After an error the rest has not been
// done: the same snapshot restored again does it. force drains what is left can't carry.
func (r *Remote) Restore(ctx context.Context, what *Restoration, force bool) error {
	w := &restoring{what: what}
	if len(what.Put)+len(what.Deleted) > 0 && w.refuses("the services", func() error { return r.putServices(ctx, what, force) }) {
		what.Put, what.Deleted = nil, nil
	}
	what.Health = slices.DeleteFunc(what.Health, func(h isobar.HealthOverride) bool {
		if h.Status == isobar.Unknown {
			h.Reason = restored
		}
		return w.refuses(healthOf(&h), func() error {
			_, err := r.SetHealth(ctx, &h, force)
			return err
		})
	})
	what.Resume = slices.DeleteFunc(what.Resume, func(service string) bool {
		return w.refuses("the end of the pause of "+cmp.Or(service, "all services"), func() error {
			_, err := r.Resume(ctx, OperatorRequest{Service: service, Reason: restored})
			return err
		})
	})
	what.Pause = slices.DeleteFunc(what.Pause, func(p plan.Pause) bool {
		return w.refuses("the pause of "+cmp.Or(p.Service, "all services"), func() error {
			_, err := r.Pause(ctx, OperatorRequest{Service: p.Service, Who: p.Who, Reason: p.Reason})
			return err
		})
	})
	return w.err
}

// restored is why a restoration takes back what operators set.
const restored = "restored from a snapshot"

// healthOf names a mark.
func healthOf(h *isobar.HealthOverride) string {
	if h.Status == isobar.Unknown {
		return fmt.Sprintf("the health of %s %s", h.Service, h.Address)
	}
	return fmt.Sprintf("the health %s of %s %s", h.Status, h.Service, h.Address)
}

// restoring is a restoration under way.
type restoring struct {
	what *Restoration
	err  error // why it ended
}

// refuses writes an entry, and reports whether the server refused it. Another error ends the
// restoration: the next entry would fail by the same.
func (w *restoring) refuses(name string, write func() error) bool {
	if w.err != nil {
		return false
	}
	err := write()
	if err == nil {
		return false
	}
	var refusal *StatusError
	if errors.As(err, &refusal) && slices.Contains([]int{http.StatusBadRequest, http.StatusNotFound, http.StatusConflict}, refusal.Code) {
		w.what.Refused = append(w.what.Refused, Refused{What: name, Why: oneLine(refusal.Problem.Error)})
		return true
	}
	w.err = fmt.Errorf("%s: %w", name, err)
	return false
}

// maxRehearsed bounds how many drains a dry run asks about: each is a preview.
const maxRehearsed = 50

// Rehearse asks the server which drains of a restoration it would refuse, and moves them to
// what.Refused. It checks each drain alone, with the services of now: of a drain in a service
// that is restored, too, nobody can tell.
func (r *Remote) Rehearse(ctx context.Context, what *Restoration) error {
	asked := 0
	var failed error
	what.Health = slices.DeleteFunc(what.Health, func(h isobar.HealthOverride) bool {
		if h.Status != isobar.Draining || failed != nil {
			return false
		}
		asked++
		var d plan.Difference
		known := asked <= maxRehearsed && !slices.Contains(what.Put, h.Service)
		if known {
			var err error
			var refusal *StatusError
			d, err = r.WhatIf(ctx, &plan.WhatIf{Drain: []plan.Drain{{Service: h.Service, Address: h.Address}}})
			if known = err == nil && d.Unchecked == ""; err != nil && !errors.As(err, &refusal) {
				failed = err
				return false
			}
		}
		switch {
		case !known:
			what.Unchecked = append(what.Unchecked, h.Service+" "+h.Address)
		case len(d.Refusals) > 0:
			why := oneLine(d.Refusals[0])
			if !strings.HasPrefix(why, plan.NoReserve) {
				why = "the remaining capacity could not carry the traffic: " + why
			}
			what.Refused = append(what.Refused, Refused{What: healthOf(&h), Why: why})
			return true
		}
		return false
	})
	return failed
}

func (r *Remote) putServices(ctx context.Context, what *Restoration, force bool) error {
	body, err := json.Marshal(struct {
		Services []isobar.Service `json:"services"`
	}{append([]isobar.Service{}, what.services...)})
	if err != nil {
		return err
	}
	u := r.base.JoinPath("v1", "services")
	query := url.Values{"confirm": {digestOf(body)}} // what it removes was shown
	if force {
		query.Set("force", "true")
	}
	u.RawQuery = query.Encode()
	var out Published
	return r.do(ctx, http.MethodPut, u, bytes.NewReader(body), &out)
}
