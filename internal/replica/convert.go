package replica

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// protocol is the version of the protocol between replicas that this program speaks,
// and oldest the oldest that it still speaks. Version 2 has differences of plans, and version 3
// a digest of their fields.
const (
	protocol = 3
	oldest   = 1

	differences  = 2 // the first version that has them
	fieldsDigest = 3 // the first version that knows it
)

func identityToProto(i group.Identity) *peerv1.Identity {
	return &peerv1.Identity{Name: i.Name, Incarnation: i.Incarnation}
}

func identityFromProto(i *peerv1.Identity) group.Identity {
	return group.Identity{Name: i.GetName(), Incarnation: i.GetIncarnation()}
}

func claimToProto(c group.Claim) *peerv1.Claim {
	if c.IsZero() {
		return nil
	}
	return &peerv1.Claim{Epoch: c.Epoch, Leader: identityToProto(c.Leader), FirstVersion: c.First}
}

func claimFromProto(c *peerv1.Claim) group.Claim {
	if c == nil {
		return group.Claim{}
	}
	return group.Claim{Epoch: c.GetEpoch(), Leader: identityFromProto(c.GetLeader()), First: c.GetFirstVersion()}
}

func statusToProto(s *group.Status, summary *peerv1.Summary) *peerv1.Status {
	return &peerv1.Status{
		Claim: claimToProto(s.Claim), PlanClaim: claimToProto(s.Plan), PlanVersion: s.Version, KnownEpoch: s.Known.Epoch, KnownVersion: s.Known.Version,
		Leads: s.Leads, Caretaker: s.Caretaker, EngineReached: s.Engine, ReplicasReached: uint32(max(0, s.Reaches)), //nolint:gosec // at most 15
		Asks: s.Asks, HandsOver: s.HandsOver, Deaf: s.Deaf, Leaves: s.Leaves, Summary: summary,
	}
}

func statusFromProto(s *peerv1.Status) *group.Status {
	return &group.Status{
		Claim: claimFromProto(s.GetClaim()), Plan: claimFromProto(s.GetPlanClaim()), Version: s.GetPlanVersion(),
		Known: group.Known{Epoch: s.GetKnownEpoch(), Version: s.GetKnownVersion()},
		Leads: s.GetLeads(), Caretaker: s.GetCaretaker(), Engine: s.GetEngineReached(), Reaches: int(min(s.GetReplicasReached(), group.MaxReplicas+1)),
		Asks: s.GetAsks(), HandsOver: s.GetHandsOver(), Deaf: s.GetDeaf(), Leaves: s.GetLeaves(),
	}
}

// MaxContent bounds the content of a plan, in bytes.
const MaxContent = 256 << 20

// partBytes is how much of a plan goes into one message.
const partBytes = 1 << 20

// assembly puts the plans of one stream together from their parts.
type assembly struct {
	plan group.Plan // without its content
	data []byte     // received bytes of the content, or of a difference
	size uint64
	base uint64     // version of the plan that the difference begins from; 0 = there is none
	pack bool       // the data is compressed
	sum  []byte     // SHA-256 of the content, of replicas with an earlier version of the protocol
	last group.Plan // the last that was whole
}

var errPart = errors.New("a part of a plan without its beginning")

// add takes the next part. It returns the plan once it is whole.
func (a *assembly) add(p *peerv1.PlanPart) (*group.Plan, error) {
	if p.GetClaim() != nil {
		if err := a.begin(p); err != nil {
			return nil, err
		}
	}
	if a.plan.IsZero() {
		return nil, errPart
	}
	if uint64(len(a.data)+len(p.GetContent())) > a.size {
		return nil, fmt.Errorf("plan %d has more than the %d bytes that its beginning says", a.plan.Version, a.size)
	}
	a.data = append(a.data, p.GetContent()...)
	if !p.GetLast() {
		return nil, nil //nolint:nilnil // it is not whole yet
	}
	whole, data := a.plan, a.data
	a.plan, a.data = group.Plan{}, nil
	if uint64(len(data)) != a.size {
		return nil, fmt.Errorf("plan %d has %d bytes, %d were announced", whole.Version, len(data), a.size)
	}
	if err := a.complete(&whole, data); err != nil {
		return nil, fmt.Errorf("plan %d: %w", whole.Version, err)
	}
	a.last = whole
	return &whole, nil
}

// begin takes the first part of a plan.
func (a *assembly) begin(p *peerv1.PlanPart) error {
	if p.GetSize() > MaxContent {
		return fmt.Errorf("plan %d has %d bytes, at most %d are allowed", p.GetVersion(), p.GetSize(), MaxContent)
	}
	a.plan, a.data = group.Plan{Claim: claimFromProto(p.GetClaim()), Version: p.GetVersion()}, nil
	a.size, a.base, a.pack, a.sum = p.GetSize(), p.GetBaseVersion(), p.GetCompressed(), p.GetDigest()
	digest := p.GetFieldsDigest()
	if len(digest) > 0 {
		a.sum = nil
		copy(a.plan.Digest[:], digest)
	} else {
		digest = a.sum
	}
	if len(digest) != sha256.Size {
		return fmt.Errorf("plan %d: its digest has %d bytes", p.GetVersion(), len(digest))
	}
	return a.plan.Validate()
}

// complete makes the content of a plan, and compares it with its digest.
func (a *assembly) complete(p *group.Plan, data []byte) (err error) {
	if a.pack {
		if data, err = unpack(data); err != nil {
			return err
		}
	}
	if p.Content, err = a.content(data); err != nil {
		return err
	}
	if a.sum == nil {
		return p.CheckContent()
	}
	return adopt(p, a.sum)
}

// content makes the content from the received bytes.
func (a *assembly) content(data []byte) (group.Content, error) {
	if a.base == 0 {
		return ContentOf(data), nil
	}
	if a.last.IsZero() || a.last.Version != a.base {
		return group.Content{}, fmt.Errorf("it is a difference from plan %d, and plan %d came last", a.base, a.last.Version)
	}
	var d peerv1.PlanDifference
	if err := proto.Unmarshal(data, &d); err != nil {
		return group.Content{}, fmt.Errorf("its difference: %w", err)
	}
	return apply(&a.last.Content, &d)
}

// adopt gives a plan the digest of its content if it has the given SHA-256: replicas of earlier
// versions send no other digest, and disks have no other, so that an earlier program can read them.
func adopt(p *group.Plan, sum []byte) error {
	if own := p.Content.Sum256(); !bytes.Equal(own[:], sum) {
		return group.ErrDigest
	}
	p.Digest = p.Content.Digest()
	return nil
}

// shortened returns a plan as it is sent, without its content.
func shortened(p, base *group.Plan) (data []byte, from uint64, compressed bool) {
	if base != nil {
		if d := difference(&base.Content, &p.Content); d != nil {
			if shorter, err := proto.Marshal(d); err == nil && len(shorter) < p.Content.Size() {
				data, from = shorter, base.Version
			}
		}
	}
	if from == 0 {
		data = p.Content.AppendTo(nil)
	}
	if packed := pack(data); len(packed) < len(data) {
		return packed, from, true
	}
	return data, from, false
}

// parts cuts a plan into messages for a replica that speaks a version of the protocol.
// base is the plan that it got last on the stream; nil = there is none.
func parts(p, base *group.Plan, speaks uint32) []*peerv1.PlanPart {
	var content []byte
	first := &peerv1.PlanPart{Claim: claimToProto(p.Claim), Version: p.Version}
	if speaks >= fieldsDigest {
		first.FieldsDigest = p.Digest[:]
	} else {
		sum := p.Content.Sum256()
		first.Digest = sum[:]
	}
	if speaks >= differences {
		content, first.BaseVersion, first.Compressed = shortened(p, base)
	} else {
		content = p.Content.AppendTo(nil)
	}
	first.Size = uint64(len(content))
	out := []*peerv1.PlanPart{first}
	last := first
	for len(content) > 0 {
		n := min(len(content), partBytes)
		if last.Content != nil {
			last = &peerv1.PlanPart{}
			out = append(out, last)
		}
		last.Content, content = content[:n], content[n:]
	}
	last.Last = true
	return out
}

// packers are idle writers of pack: a new one takes more than a megabyte.
var packers = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(io.Discard, flate.BestSpeed) // the level is right
	return w
}}

// pack compresses a plan, fast rather than well.
func pack(data []byte) []byte {
	var out bytes.Buffer
	w := packers.Get().(*flate.Writer) //nolint:forcetypeassert // it holds nothing else
	defer func() {
		w.Reset(io.Discard) // so that it does not keep out
		packers.Put(w)
	}()
	w.Reset(&out)
	_, err := w.Write(data)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return data // a buffer in memory takes everything
	}
	return out.Bytes()
}

// unpack undoes pack, for at most the size of a plan.
func unpack(data []byte) ([]byte, error) {
	out, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(data)), MaxContent+1))
	if err != nil {
		return nil, fmt.Errorf("it can't be unpacked: %w", err)
	}
	if len(out) > MaxContent {
		return nil, fmt.Errorf("it has more than %d bytes, unpacked", MaxContent)
	}
	return out, nil
}
