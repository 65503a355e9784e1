package replica

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// savedFormat is the version of a replica's state on its disk.
const savedFormat = 1

// savePlanEvery bounds how often the plan is written: all of it is. A replica that
// restarts with an older one pulls the newest from the others.
const savePlanEvery = 5 * time.Second

// load reads the state of an earlier run.
func load(disk Disk, known group.Known) (group.Saved, error) {
	saved := group.Saved{Known: known}
	data, err := disk.LoadReplica()
	if err != nil {
		return saved, fmt.Errorf("replica: the saved state: %w", err)
	}
	var kept peerv1.SavedReplica
	if err := decodeSaved("replica", data, &kept); err != nil {
		return saved, err
	}
	saved.Known.Epoch = max(saved.Known.Epoch, kept.GetKnownEpoch())
	saved.Known.Version = max(saved.Known.Version, kept.GetKnownVersion())
	saved.Fence = claimFromProto(kept.GetFence())
	if data, err = disk.LoadPlan(); err != nil {
		return saved, fmt.Errorf("replica: the saved plan: %w", err)
	}
	var plan peerv1.SavedPlan
	if err := decodeSaved("plan", data, &plan); err != nil {
		return saved, err
	}
	if plan.GetVersion() != 0 {
		saved.Plan = group.Plan{Claim: claimFromProto(plan.GetClaim()), Version: plan.GetVersion(), Content: ContentOf(plan.GetContent())}
		if err := adopt(&saved.Plan, plan.GetDigest()); err != nil {
			return saved, fmt.Errorf("replica: the saved plan %d: %w", plan.GetVersion(), err)
		}
	}
	return saved, nil
}

// ForgetPlan removes the plan that a disk has of the group. What the replica knows of epochs
// and versions stays.
func ForgetPlan(disk Disk) error {
	data, err := proto.Marshal(&peerv1.SavedPlan{Format: savedFormat})
	if err != nil {
		return err
	}
	return disk.SavePlan(data)
}

// formatted is a state with a format.
type formatted interface {
	proto.Message
	GetFormat() uint32
}

func decodeSaved(what string, data []byte, into formatted) error {
	if data == nil {
		return nil
	}
	if err := proto.Unmarshal(data, into); err != nil {
		return fmt.Errorf("replica: the saved %s can't be read: %w", what, err)
	}
	if f := into.GetFormat(); f != savedFormat {
		return fmt.Errorf("replica: the saved %s has format %d, this program reads %d: %w", what, f, savedFormat, group.ErrNewerFormat)
	}
	return nil
}

// saver writes the newest state in a goroutine of its own: a slow disk delays
// nothing.
type saver struct {
	disk Disk
	log  *slog.Logger
	kick chan struct{} // capacity 1

	mu      sync.Mutex
	next    group.Saved
	waiting bool

	// Owned by the goroutine of run.
	known   group.Known
	fence   group.Claim
	version uint64
	at      time.Time
	failed  bool
}

func newSaver(disk Disk, log *slog.Logger) *saver {
	return &saver{disk: disk, log: log, kick: make(chan struct{}, 1)}
}

func (s *saver) save(next group.Saved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next, s.waiting = next, true
	signal(s.kick)
}

// run writes until ctx ends, and then the remaining state.
func (s *saver) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			s.write(true)
			return
		case <-s.kick:
		case <-timer.C:
		}
		if again := s.write(false); again > 0 {
			timer.Reset(again)
		}
	}
}

// write writes the pending state. It returns when it has to be called again; 0 = not before the
// next save.
func (s *saver) write(all bool) (again time.Duration) {
	s.mu.Lock()
	next, waiting := s.next, s.waiting
	s.waiting = false
	s.mu.Unlock()
	if !waiting && next.Plan.Version == s.version {
		return 0
	}
	if next.Known != s.known || next.Fence != s.fence {
		s.report(s.writeReplica(&next))
	}
	if next.Plan.IsZero() || next.Plan.Version == s.version {
		return 0
	}
	if wait := savePlanEvery - time.Since(s.at); wait > 0 && !all {
		return wait
	}
	s.report(s.writePlan(&next.Plan))
	return 0
}

func (s *saver) writeReplica(next *group.Saved) error {
	data, err := proto.Marshal(&peerv1.SavedReplica{
		Format: savedFormat, KnownEpoch: next.Known.Epoch, KnownVersion: next.Known.Version, Fence: claimToProto(next.Fence),
	})
	if err == nil {
		err = s.disk.SaveReplica(data)
	}
	if err == nil {
		s.known, s.fence = next.Known, next.Fence
	}
	return err
}

func (s *saver) writePlan(p *group.Plan) error {
	s.at = time.Now()
	data, err := encodeSavedPlan(p)
	if err == nil {
		err = s.disk.SavePlan(data)
	}
	if err == nil {
		s.version = p.Version
	}
	return err
}

// encodeSavedPlan encodes a [peerv1.SavedPlan]. Its content, the last field, is copied once: it has
// megabytes.
func encodeSavedPlan(p *group.Plan) ([]byte, error) {
	sum := p.Content.Sum256()
	saved := &peerv1.SavedPlan{Format: savedFormat, Claim: claimToProto(p.Claim), Version: p.Version, Digest: sum[:]}
	data, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 0, proto.Size(saved)+p.Content.Size()+2*binary.MaxVarintLen64), saved)
	if err != nil || p.Content.Size() == 0 {
		return data, err
	}
	data = protowire.AppendTag(data, saved.ProtoReflect().Descriptor().Fields().ByName("content").Number(), protowire.BytesType)
	data = protowire.AppendVarint(data, uint64(p.Content.Size())) //nolint:gosec // a size
	return p.Content.AppendTo(data), nil
}

func (s *saver) report(err error) {
	switch {
	case err != nil && !s.failed:
		s.log.Error("could not save the replica's state; serving from memory", "error", err)
	case err == nil && s.failed:
		s.log.Info("saving the replica's state works again")
	}
	s.failed = err != nil
}
