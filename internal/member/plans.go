package member

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/replica"
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
	sent   map[string]sentService // of the plan that was encoded last, by name
	found  *health.SavedMonitor
	health []group.Part // found, encoded
	// healthSize is the number of bytes of health, as the size of the next buffer.
	healthSize int

	last  *plan.Opened                      // what was opened last
	heard partDigest                        // of the health in it
	read  map[partDigest]plan.SharedService // of the content that was decoded last
}

// partDigest is the digest of a part of a content; the zero value = of none.
type partDigest = [sha256.Size]byte

// sentService is a service of a plan, and the part of the plan's content that has it.
type sentService struct {
	plan.SharedService

	part group.Part
}

// encode writes a plan as it goes to other replicas. The content is that of a [peerv1.PlanContent],
// whose fields are the parts: services that stay are neither encoded, copied nor hashed again.
func (c *planCodec) encode(p *plan.Plan, o plan.Origin, found *health.SavedMonitor) (group.Content, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared, err := c.sharer.Share(p, o)
	if err != nil {
		return group.Content{}, err
	}
	if err := c.encodeHealth(found); err != nil {
		return group.Content{}, fmt.Errorf("what checkers found can't be encoded: %w", err)
	}
	after := &peerv1.PlanContent{Marks: marksToProto(c.marks, time.Now())}
	if after.Operators, err = c.operated.toProto(); err != nil {
		return group.Content{}, err
	}
	if digest := c.inForce.Load(); digest != nil {
		after.ConfigDigest = *digest
	}
	parts := make([]group.Part, 0, len(shared.Services)+8)
	if parts, err = appendFields(parts, &peerv1.PlanContent{Format: contentFormat, Header: shared.Header}); err != nil {
		return group.Content{}, err
	}
	if parts, err = c.appendServices(parts, shared.Services); err != nil {
		return group.Content{}, err
	}
	if parts, err = appendFields(append(parts, c.health...), after); err != nil {
		return group.Content{}, err
	}
	return group.NewContent(parts), nil
}

// encodeHealth encodes what checkers found, unless it is the same as before.
func (c *planCodec) encodeHealth(found *health.SavedMonitor) error {
	if found == c.found {
		return nil
	}
	data, err := found.AppendJSON(make([]byte, 0, c.healthSize+c.healthSize/8))
	if err != nil {
		return err
	}
	c.healthSize = len(data)
	c.health, err = appendFields(nil, &peerv1.PlanContent{Health: data})
	c.found = found
	return err
}

// appendFields appends the fields that are set.
func appendFields(to []group.Part, fields *peerv1.PlanContent) ([]group.Part, error) {
	data, err := proto.Marshal(fields)
	return append(to, replica.Cut(data)...), err
}

// appendServices appends services: those that are as in the plan before by the parts that they had there.
func (c *planCodec) appendServices(to []group.Part, services []plan.SharedService) ([]group.Part, error) {
	next := make(map[string]sentService, len(services))
	for i := range services {
		s := services[i]
		sent, ok := c.sent[s.Name]
		// Slices of the same memory are equal at once.
		if !ok || !bytes.Equal(sent.Configuration, s.Configuration) || !bytes.Equal(sent.Decision, s.Decision) {
			data, err := proto.Marshal(&peerv1.PlanContent{
				Services: []*peerv1.ServiceContent{{Name: s.Name, Configuration: s.Configuration, Decision: s.Decision}},
			})
			if err != nil {
				return nil, err
			}
			sent.part = group.NewPart(data)
		}
		sent.SharedService = s
		next[s.Name] = sent
		to = append(to, sent.part)
	}
	c.sent = next
	return to, nil
}

// contentFormat is the version of the content of plans that this program writes and
// reads.
const contentFormat = 1

// open reads a plan of another replica.
func (c *planCodec) open(data group.Content) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sharer, c.sent = plan.Sharer{}, nil // a replica that follows has no use for what it sent
	content, err := c.decode(&data)
	if err != nil {
		return nil, err
	}
	if f := content.GetFormat(); f != contentFormat {
		return nil, fmt.Errorf("the plan has format %d, this program reads %d: %w", f, contentFormat, group.ErrNewerFormat)
	}
	o, err := plan.Open(&plan.Shared{Header: content.GetHeader(), Services: content.services}, c.last, time.Now())
	if err != nil {
		return nil, err
	}
	switch {
	case content.health != partDigest{} && content.health == c.heard:
		o.Health = c.last.Health
	case len(content.GetHealth()) > 0:
		if err := json.Unmarshal(content.GetHealth(), &o.Health); err != nil {
			return nil, fmt.Errorf("what checkers found: %w", err)
		}
		o.Health.Shift(o.Ahead)
	}
	c.last, c.heard = o, content.health
	noteMarks(c.marks, time.Now(), content.GetMarks())
	return &opened{o, operatorsFromProto(content.GetOperators()), content.GetConfigDigest()}, nil
}

// decoded is a content that another replica encoded.
type decoded struct {
	*peerv1.PlanContent // without services, and without health that was opened last

	services []plan.SharedService
	health   partDigest
}

// decode reads the parts of a content. It does not read again what was in the content before.
func (c *planCodec) decode(data *group.Content) (*decoded, error) {
	d := &decoded{PlanContent: &peerv1.PlanContent{}, services: make([]plan.SharedService, 0, len(data.Parts()))}
	read := make(map[partDigest]plan.SharedService, len(data.Parts()))
	for i := range data.Parts() {
		part := &data.Parts()[i]
		digest := part.Digest()
		field, _, _ := protowire.ConsumeTag(part.Bytes())
		if field == healthField {
			if d.health = digest; digest == c.heard {
				continue
			}
		}
		service, known := c.read[digest]
		if !known {
			if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(part.Bytes(), d.PlanContent); err != nil {
				return nil, err
			}
			switch len(d.GetServices()) {
			case 0:
				continue
			case 1:
			default:
				return nil, errors.New("a part of the plan has several services")
			}
			s := d.GetServices()[0]
			service = plan.SharedService{Name: s.GetName(), Configuration: s.GetConfiguration(), Decision: s.GetDecision()}
			d.Services = nil
		}
		read[digest] = service
		d.services = append(d.services, service)
	}
	c.read = read
	return d, nil
}

// healthField is the number of the field of health in a content.
var healthField = (*peerv1.PlanContent)(nil).ProtoReflect().Descriptor().Fields().ByName("health").Number()

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
