package member

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// planCodec encodes plans for other replicas, with what operators wrote and what checkers
// found, and opens theirs.
type planCodec struct {
	operated *Operated
	marks    Marks
	inForce  *atomic.Pointer[string] // digest of the configuration that plans are made with

	mu     sync.Mutex // held while encoding or decoding
	sharer plan.Sharer
	last   *plan.Opened // what was opened last
	found  *health.SavedMonitor
	health []byte // found, encoded
}

// encode writes a plan as it goes to other replicas.
func (c *planCodec) encode(p *plan.Plan, o plan.Origin, found *health.SavedMonitor) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared, err := c.sharer.Share(p, o)
	if err != nil {
		return nil, err
	}
	if found != c.found {
		if c.health, err = json.Marshal(found); err != nil {
			return nil, fmt.Errorf("what checkers found can't be encoded: %w", err)
		}
		c.found = found
	}
	operators, err := c.operated.toProto()
	if err != nil {
		return nil, err
	}
	content := &peerv1.PlanContent{
		Format: contentFormat, Header: shared.Header, Health: c.health, Services: make([]*peerv1.ServiceContent, len(shared.Services)),
		Operators: operators, Marks: marksToProto(c.marks, time.Now()),
	}
	if digest := c.inForce.Load(); digest != nil {
		content.ConfigDigest = *digest
	}
	for i := range shared.Services {
		s := &shared.Services[i]
		content.Services[i] = &peerv1.ServiceContent{Name: s.Name, Configuration: s.Configuration, Decision: s.Decision}
	}
	return proto.Marshal(content)
}

// contentFormat is the version of the content of plans that this program writes and
// reads.
const contentFormat = 1

// open reads a plan of another replica.
func (c *planCodec) open(data []byte) (any, error) {
	content := &peerv1.PlanContent{}
	if err := proto.Unmarshal(data, content); err != nil {
		return nil, err
	}
	if f := content.GetFormat(); f != contentFormat {
		return nil, fmt.Errorf("the plan has format %d, this program reads %d: %w", f, contentFormat, group.ErrNewerFormat)
	}
	shared := &plan.Shared{Header: content.GetHeader(), Services: make([]plan.SharedService, len(content.GetServices()))}
	for i, s := range content.GetServices() {
		shared.Services[i] = plan.SharedService{Name: s.GetName(), Configuration: s.GetConfiguration(), Decision: s.GetDecision()}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	o, err := plan.Open(shared, c.last, time.Now())
	if err != nil {
		return nil, err
	}
	if len(content.GetHealth()) > 0 {
		if err := json.Unmarshal(content.GetHealth(), &o.Health); err != nil {
			return nil, fmt.Errorf("what checkers found: %w", err)
		}
		o.Health.Shift(o.Ahead)
	}
	c.last = o
	noteMarks(c.marks, time.Now(), content.GetMarks())
	return &opened{o, operatorsFromProto(content.GetOperators()), content.GetConfigDigest()}, nil
}

// Marks are the moments that charts mark. The leader's plans bring them to all replicas.
type Marks interface {
	// Fresh lists the marks that other replicas may not have yet.
	Fresh(now time.Time) []admin.SampleMark
	// Note adds a mark, unless it is known.
	Note(now time.Time, m admin.SampleMark)
}

// marksToProto returns the marks that other replicas may not have yet.
func marksToProto(of Marks, now time.Time) []*peerv1.ChartMark {
	var out []*peerv1.ChartMark
	for _, m := range of.Fresh(now) {
		out = append(out, &peerv1.ChartMark{AgeMicros: now.Sub(m.At).Microseconds(), AtMicros: m.At.UnixMicro(), Text: m.Text, Who: m.Who})
	}
	return out
}

// noteMarks notes the marks of another replica.
func noteMarks(in Marks, now time.Time, of []*peerv1.ChartMark) {
	for _, m := range of {
		at := now.Add(-time.Duration(m.GetAgeMicros()) * time.Microsecond).UTC().Truncate(time.Millisecond)
		if m.GetAtMicros() != 0 { // 0 in plans of earlier programs
			at = time.UnixMicro(m.GetAtMicros()).UTC()
		}
		in.Note(now, admin.SampleMark{At: at, Text: m.GetText(), Who: m.GetWho()})
	}
}
