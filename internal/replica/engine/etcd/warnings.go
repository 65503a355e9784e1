package etcd

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/replica/engine"
)

var _ engine.Inspector = (*Engine)(nil)

const (
	// statusPatience bounds the question to one member.
	statusPatience = 2 * time.Second
	// nearlyFull is the part of its quota above which a member needs attention.
	nearlyFull = 0.8
)

// Warnings implements [engine.Inspector]: members whose database has little space left,
// alarms of etcd, members of different clusters, as after a restore that made each of
// them a cluster of its own, and members that do not answer while others do. Once a member's
// database reaches its quota, etcd refuses all writes: the leader can renew its lease, and no other
// replica can take over.
func (e *Engine) Warnings(ctx context.Context) []string {
	var out, silent []string
	first, cluster := "", uint64(0)
	for _, member := range e.opts.Client.Endpoints() {
		once, cancel := context.WithTimeout(ctx, statusPatience)
		s, err := e.opts.Client.Status(once, member)
		cancel()
		if err != nil {
			silent = append(silent, fmt.Sprintf("etcd member %s does not answer: %s", member, status.Convert(err).Message()))
			continue
		}
		if first == "" {
			first, cluster = member, s.Header.GetClusterId()
		}
		if s.Header.GetClusterId() != cluster {
			out = append(out, fmt.Sprintf("etcd members %s and %s belong to different clusters, so no replica can lead for long: "+
				"restore each member with --initial-cluster, or name the members of one cluster", first, member))
		}
		for _, text := range s.Errors {
			if text == rpctypes.ErrNoLeader.Error() {
				out = append(out, fmt.Sprintf("etcd member %s has no leader of etcd: it is cut off from the others, or etcd lacks a quorum", member))
				continue
			}
			out = append(out, fmt.Sprintf("etcd member %s has an alarm: %s", member, text))
		}
		size, quota := float64(s.DbSize), float64(s.DbSizeQuota)
		if quota > 0 && size >= nearlyFull*quota {
			const mib = 1 << 20
			out = append(out, fmt.Sprintf("the database of etcd member %s has %.0f of %.0f MiB: compact and defragment it, or raise --quota-backend-bytes",
				member, size/mib, quota/mib))
		}
	}
	if first == "" { // the engine can't be reached at all, which replicas tell themselves
		return nil
	}
	return append(out, silent...)
}
