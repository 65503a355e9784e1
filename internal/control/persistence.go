package control

import (
	"errors"
	"slices"
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
)

// reserveStep is how many versions are reserved at once: versions must grow
// also when the process dies between publishing a plan and saving it.
const reserveStep = 10_000

// saveEvery bounds how old the saved demand may be while no weight changes.
const saveEvery = 30 * time.Second

// saveInGroupEvery bounds how often a replica of a group saves its plan as a single server does,
// with the history: if it is killed, it continues from the plan of the group, which it saves
// separately. This state is for a server that leaves its group, and it is saved as a replica ends.
const saveInGroupEvery = 15 * time.Second

// retryEvery is how often saving is tried again while it fails.
const retryEvery = 5 * time.Second

// persistence is the state that outlives the process: the plan, its history, and the last
// reserved version. It is owned by the loop's goroutine.
type persistence struct {
	boot    func() Boot
	changed func(plan.Change)

	inGroup   bool // the server is a replica
	saver     *saver
	history   *plan.History
	pages     []plan.Page // of it, to be saved with the next plan
	reserved  uint64      // versions up to here may be used
	ahead     uint64      // those up to here are being reserved
	lastSaved time.Time
}

// newPersistence restores the state of an earlier process. Unreadable pages of its history are
// left out: the server starts without them.
func newPersistence(opts *Options, saved *plan.Saved, m *metrics) *persistence {
	pages, err := opts.State.LoadHistory()
	if err != nil {
		opts.Log.Error("can't read the history of earlier plans; starting with an empty one", "error", err)
	}
	return &persistence{
		boot: opts.Boot, changed: opts.Changed, inGroup: opts.Group != nil,
		history: plan.NewHistory(pages, saved), saver: newSaver(opts.State, opts.Log, m),
	}
}

// note adds a change to the history.
func (p *persistence) note(c plan.Change) {
	page := p.history.Add(c)
	if n := len(p.pages); n > 0 && p.pages[n-1].Number == page.Number {
		p.pages = p.pages[:n-1]
	}
	p.pages = append(p.pages, page)
	p.changed(c)
}

// save has a plan written with the newest part of the history.
func (p *persistence) save(saved *plan.Saved, made time.Time) {
	p.saver.save(job{plan: saved, pages: p.pages})
	p.lastSaved, p.pages = made, nil
}

// reserve makes versions up to above+reserveStep usable, durably. Where the
// state can't be written, which has been told then, serving goes on.
func (p *persistence) reserve(saved plan.Saved, above uint64) error {
	p.reserved = above + reserveStep
	saved.Reserved = p.reserved
	// Twice, because the newest file may be damaged later, and the one before it
	// must not allow versions that this process has used.
	err := errors.Join(p.saver.write(saved), p.saver.write(saved))
	p.lastSaved = time.Now()
	return err
}

// reserveAhead makes later saves reserve the next versions as well, once half of the reserved
// ones are used: publishing then never waits for the disk.
func (p *persistence) reserveAhead(version uint64) {
	p.reserved = max(p.reserved, p.saver.durable.Load())
	if version+reserveStep/2 > p.reserved {
		p.ahead = max(p.ahead, p.reserved+reserveStep)
	}
}

func (p *persistence) toSave(of *plan.Plan) plan.Saved {
	saved := of.Save()
	saved.Reserved, saved.LastChange = max(p.reserved, p.ahead), p.history.Last()
	boot := p.boot()
	saved.Boot, saved.Up = boot.ID, boot.Up
	return saved
}

// worthSaving reports whether a restart from the saved state would serve other weights, or have
// much older demand.
func (p *persistence) worthSaving(before, now *plan.Plan) bool {
	every := saveEvery
	if p.saver.fails() {
		every = retryEvery
	} else if p.inGroup && before != nil && now.Made.Sub(p.lastSaved) < saveInGroupEvery {
		return false
	}
	if before == nil || len(p.pages) > 0 || len(before.Services) != len(now.Services) || now.Made.Sub(p.lastSaved) >= every {
		return true
	}
	for i, s := range now.Services {
		b := before.Services[i]
		if b == s {
			continue
		}
		if b.Spec.Name != s.Spec.Name || len(b.Result.Sources) != len(s.Result.Sources) ||
			b.Result.Drop != s.Result.Drop || !b.Result.Classes.Equal(s.Result.Classes) {
			return true
		}
		for j := range s.Result.Sources {
			if !slices.Equal(s.Result.Sources[j].Shares, b.Result.Sources[j].Shares) {
				return true
			}
		}
	}
	return false
}
