package group

import (
	"errors"
	"fmt"
	"time"
)

// Plan is one published version. Its content is opaque here; plans are equal if
// claim, version and digest are.
type Plan struct {
	Claim   Claim
	Version uint64
	Digest  [32]byte // of the content; see [Content.Digest]
	Content Content
}

// ErrDigest says that the content of a plan is not the one that its leader made.
var ErrDigest = errors.New("the digest does not fit the content")

// CheckContent returns ErrDigest unless the plan has the content that its digest names.
func (p *Plan) CheckContent() error {
	if p.Content.Digest() != p.Digest {
		return ErrDigest
	}
	return nil
}

// IsZero reports whether there is no plan.
func (p *Plan) IsZero() bool { return p.Version == 0 }

// Validate returns an error if a plan of another replica is invalid.
func (p *Plan) Validate() error {
	if err := p.Claim.Validate(); err != nil {
		return fmt.Errorf("plan %d: %w", p.Version, err)
	}
	if p.Claim.IsZero() {
		return fmt.Errorf("plan %d: it has no claim", p.Version)
	}
	if !p.Claim.Contains(p.Version) {
		return fmt.Errorf("plan %d: the version does not belong to %s", p.Version, p.Claim)
	}
	return nil
}

// Status is the message that each replica sends each other replica at every heartbeat.
type Status struct {
	Claim     Claim  // the newest claim that the sender knows of
	Plan      Claim  // the claim of the plan that the sender serves
	Version   uint64 // of that plan; 0 = the sender has none
	Known     Known
	Leads     bool // the sender holds the lease, and Claim is its own
	Caretaker bool // the sender goes on in its epoch without the engine
	Engine    bool // the sender reaches the engine
	Reaches   int  // live replicas that the sender hears, itself included
	Asks      bool // the sender waits for an answer
	HandsOver bool // the sender gave up leadership on purpose: campaign now
	Deaf      bool // the sender does not hear the receiver
	Leaves    bool // the sender is about to end, and takes no leadership any more
}

// Validate returns an error if a status of another replica is invalid.
func (s *Status) Validate() error {
	if err := errors.Join(s.Claim.Validate(), s.Plan.Validate()); err != nil {
		return fmt.Errorf("status: %w", err)
	}
	if s.Known.Epoch > MaxVersion || s.Known.Version > MaxVersion || s.Version > MaxVersion {
		return errors.New("status: a version or an epoch is out of range")
	}
	if s.Version != 0 && !s.Plan.IsZero() && !s.Plan.Contains(s.Version) {
		return fmt.Errorf("status: version %d does not belong to %s", s.Version, s.Plan)
	}
	if s.Reaches < 0 || s.Reaches > MaxReplicas {
		return fmt.Errorf("status: %d replicas reached", s.Reaches)
	}
	return nil
}

// MaxReplicas bounds the size of a group.
const MaxReplicas = 15

// Message is a message from one replica to another: exactly one field is set.
type Message struct {
	Status *Status
	Plan   *Plan
	Pull   *Pull
}

// Pull asks for the plan that the receiver has, if it is newer than Above.
type Pull struct {
	Above uint64
	// Base asks for the plan to go on from it, whatever its epoch is.
	Base bool
}

// Op is the kind of a request to an engine.
type Op uint8

// The operations of an engine.
const (
	OpRead    Op = iota // read the leader and the claim
	OpAcquire           // take leadership if no replica has it
	OpRenew             // keep it
	OpClaim             // write a claim; guarded by leadership and the claim before
	OpRelease           // give it up
)

func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return "unknown"
}

// opNames has the names of the operations.
var opNames = [...]string{"read", "acquire", "renew", "claim", "release"}

// Request is an operation that the caller runs on the engine. The answer goes to
// [Node.Answered]. A node has at most one request under way.
type Request struct {
	ID       uint64
	Op       Op
	Previous Claim // OpClaim: the expected claim of the engine
	Claim    Claim // OpClaim: the claim to write
	Reaches  int   // live replicas that the sender hears, itself included
}

// Presence is the entry of a replica that does not lead in the engine, for a leader that is cut
// off from it.
type Presence struct {
	Name    string
	Reaches int
	Age     time.Duration // since it was left or confirmed, when the engine answered
}

// Standing is the state of an engine. It is exact at some moment between request and answer.
type Standing struct {
	Holder Identity // the leader; the zero value if there is none
	Claim  Claim    // the newest claim
	// Present has the replicas that asked for leadership recently, as far as the engine
	// tells.
	Present []Presence
}

func (s *Standing) validate() error {
	if len(s.Present) > MaxReplicas {
		return fmt.Errorf("the engine lists %d replicas", len(s.Present))
	}
	return s.Claim.Validate()
}

// Answer is the engine's answer to a request. An operation that is refused is no
// error: Standing tells why.
type Answer struct {
	Standing Standing
	Err      error // the engine could not be asked; the operation may have happened
}

// Action is one step for the caller to carry out, in the order given. Exactly one field is set.
type Action struct {
	Request *Request
	Send    *Send
	Save    *Saved
	Serve   *Plan    // show this plan to clients
	Role    *Role    // the role changed
	Alarm   *Alarm   // an operator should know
	Refused *Refusal // a plan was refused
}

// Send is a message to another replica, by its name. It may be lost.
type Send struct {
	To      string
	Message Message
}

// Refusal tells why a plan of another replica was not accepted.
type Refusal struct {
	From    string
	Version uint64
	Epoch   uint64
	Reason  string
}

// Alarm is a state of the group that an operator should know of.
type Alarm struct {
	Of   AlarmOf
	Text string // empty = the state is over
}

// AlarmOf is the subject of an alarm. A newer alarm of the same subject replaces the earlier one.
type AlarmOf uint8

// The subjects of a node's alarms.
const (
	// NoClaim: no claim can follow the newest one. This never ends.
	NoClaim AlarmOf = iota
	// EngineBehind: the engine has an older claim than replicas saw.
	EngineBehind
	// CutOff: the replica stepped down because another one reaches more of the group.
	CutOff
)

// Saved is the state of a replica on its disk.
type Saved struct {
	Known Known
	Fence Claim // the newest that the engine named; lower epochs are refused
	Plan  Plan
}
