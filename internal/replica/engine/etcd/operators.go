package etcd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// What operators write stands beside the election:
//
//	PREFIX/GROUP/operators/head          the number of the last write
//	PREFIX/GROUP/operators/entries/KEY   an entry
//	PREFIX/GROUP/operators/log/ID/N      a part of the last write, while the entries don't have it
//
// A write that fits into one transaction changes entries and head together. A larger
// one is first kept in parts under log, which mean nothing yet; the transaction on head
// makes it count. The entries follow, and readers apply the log until they have. Each
// attempt has an id of its own: a request of an earlier one may still arrive.

const (
	// txnOps is how many entries a transaction changes: etcd takes 128 operations by
	// default.
	txnOps = 100
	// txnBytes is how much of them a transaction carries: etcd takes 1.5 MiB by default.
	txnBytes = 900 << 10
	// pageKeys is how many keys one request reads.
	pageKeys = 500

	headFormat = 1
)

// head is the value of operators/head.
type head struct {
	Format   int    `json:"format"`
	Sequence uint64 `json:"sequence"`
	Log      string `json:"log,omitempty"`       // id of the log that the entries don't have yet
	Parts    int    `json:"log_parts,omitempty"` // of that log
}

var _ engine.Operators = (*Engine)(nil)

func (e *Engine) operators() string {
	return strings.TrimSuffix(e.prefix, "election/") + "operators/"
}

// shelf is the operators' part of etcd at one revision.
type shelf struct {
	head     head
	revision int64 // at which head was written; 0 = never
	entries  map[string][]byte
	log      map[string][]byte // by ID/N
}

// ReadOperators implements [engine.Operators].
func (e *Engine) ReadOperators(ctx context.Context) (engine.Written, error) {
	s, err := e.readShelf(ctx)
	if err != nil {
		return engine.Written{}, fmt.Errorf("etcd: reading the writes of operators: %w", err)
	}
	return engine.Written{Sequence: s.head.Sequence, Entries: s.entries}, nil
}

// LastWrite implements [engine.Operators].
func (e *Engine) LastWrite(ctx context.Context) (uint64, error) {
	s, err := e.readHead(ctx)
	if err != nil {
		return 0, fmt.Errorf("etcd: the last write of operators: %w", err)
	}
	return s.head.Sequence, nil
}

// readShelf reads everything as it was at one revision, with the log applied.
func (e *Engine) readShelf(ctx context.Context) (*shelf, error) {
	prefix := e.operators()
	s := &shelf{entries: map[string][]byte{}, log: map[string][]byte{}}
	from, end, revision := prefix, clientv3.GetPrefixRangeEnd(prefix), int64(0)
	for {
		options := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(pageKeys)}
		if revision != 0 {
			options = append(options, clientv3.WithRev(revision))
		}
		r, err := e.fetch(ctx, from, options...)
		if err != nil {
			return nil, err
		}
		if revision == 0 {
			revision = r.Header.GetRevision()
		}
		for _, kv := range r.Kvs {
			if err := s.take(strings.TrimPrefix(string(kv.GetKey()), prefix), kv); err != nil {
				return nil, err
			}
		}
		if !r.More || len(r.Kvs) == 0 {
			return s, s.applyLog()
		}
		from = string(r.Kvs[len(r.Kvs)-1].GetKey()) + "\x00"
	}
}

func (s *shelf) take(key string, kv *mvccpb.KeyValue) error {
	kind, rest, _ := strings.Cut(key, "/")
	switch kind {
	case "head":
		if err := json.Unmarshal(kv.GetValue(), &s.head); err != nil {
			return fmt.Errorf("%s: %w", kv.GetKey(), err)
		}
		if s.head.Format != headFormat {
			return fmt.Errorf("%s has format %d, this program reads %d: %w", kv.GetKey(), s.head.Format, headFormat, group.ErrNewerFormat)
		}
		s.revision = kv.GetModRevision()
	case "entries":
		if len(s.entries) >= engine.MaxEntries {
			return fmt.Errorf("%w: more than %d entries", engine.ErrTooLarge, engine.MaxEntries)
		}
		s.entries[rest] = kv.GetValue()
	case "log":
		s.log[rest] = kv.GetValue()
	}
	return nil
}

// applyLog makes the changes of a log that counts.
func (s *shelf) applyLog() error {
	for n := range s.head.Parts {
		var changes []engine.Change
		if err := json.Unmarshal(s.log[partKey(s.head.Log, n)], &changes); err != nil {
			return fmt.Errorf("part %d of the log: %w", n, err)
		}
		engine.Apply(s.entries, changes)
	}
	return nil
}

// WriteOperators implements [engine.Operators].
func (e *Engine) WriteOperators(ctx context.Context, claim group.Claim, previous, next uint64, changes []engine.Change) error {
	if err := engine.CheckChanges(previous, next, changes); err != nil {
		return err
	}
	if err := e.write(ctx, claim, previous, next, changes); err != nil {
		return fmt.Errorf("etcd: writing for operators: %w", err)
	}
	return nil
}

// errHeadMoved says that the head was written since it was read. That need not be another
// write: the entries may have followed a log.
var errHeadMoved = errors.New("the head was written meanwhile")

// writeTries bounds how often a write restarts.
const writeTries = 10

func (e *Engine) write(ctx context.Context, claim group.Claim, previous, number uint64, changes []engine.Change) error {
	guard, err := e.guard(claim)
	if err != nil {
		return err
	}
	for range writeTries {
		err = e.tryWrite(ctx, guard, previous, number, changes)
		if claim.IsZero() && errors.Is(err, engine.ErrNotLeading) {
			return engine.ErrLed
		}
		if !errors.Is(err, errHeadMoved) {
			return err
		}
	}
	return err
}

// tryWrite writes once. With errHeadMoved nothing was written.
func (e *Engine) tryWrite(ctx context.Context, guard []clientv3.Cmp, previous, number uint64, changes []engine.Change) error {
	s, err := e.readHead(ctx)
	if err != nil {
		return err
	}
	if s.head.Parts > 0 { // an earlier leader did not get to it
		if s, err = e.foldLog(ctx, guard, s); err != nil {
			return err
		}
	}
	if s.head.Sequence != previous {
		return fmt.Errorf("%w: the last one has number %d, not %d", engine.ErrStale, s.head.Sequence, previous)
	}
	parts := split(changes)
	next := head{Format: headFormat, Sequence: number}
	if len(parts) <= 1 {
		var ops []clientv3.Op
		if len(parts) == 1 {
			ops = e.entryOps(parts[0])
		}
		_, err := e.commit(ctx, guard, s, next, ops)
		return err
	}
	if next.Log, err = newLogID(); err != nil {
		return err
	}
	for n, part := range parts {
		data, err := json.Marshal(part)
		if err != nil {
			return err
		}
		// The guard keeps a leader that was replaced from disturbing its successor's log.
		if err := e.guarded(ctx, guard, s, clientv3.OpPut(e.logKey(next.Log, n), string(data))); err != nil {
			return err
		}
	}
	next.Parts = len(parts)
	revision, err := e.commit(ctx, guard, s, next, nil)
	if err != nil {
		return err
	}
	// The write counts. If the entries can't follow now, a later write has them follow.
	_, _ = e.foldLog(ctx, guard, &shelf{head: next, revision: revision})
	return nil
}

func (e *Engine) logKey(id string, n int) string { return e.operators() + "log/" + partKey(id, n) }

func partKey(id string, n int) string { return id + "/" + strconv.Itoa(n) }

func newLogID() (string, error) {
	var id [8]byte
	_, err := rand.Read(id[:])
	return hex.EncodeToString(id[:]), err
}

// guard is the condition for a write of the claim's leader, or of a group without one.
func (e *Engine) guard(claim group.Claim) ([]clientv3.Cmp, error) {
	if claim.IsZero() {
		return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(e.prefix+"leader"), "=", 0)}, nil
	}
	data, err := claim.Encode()
	if err != nil {
		return nil, err
	}
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.Value(e.prefix+"leader"), "=", string(e.self)),
		clientv3.Compare(clientv3.Value(e.prefix+"claim"), "=", string(data)),
	}, nil
}

// fetch makes one request.
func (e *Engine) fetch(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, engine.RequestPatience)
	defer cancel()
	return e.get(ctx, key, options...)
}

// readHead reads which write was the last.
func (e *Engine) readHead(ctx context.Context) (*shelf, error) {
	r, err := e.fetch(ctx, e.operators()+"head")
	if err != nil {
		return nil, err
	}
	s := &shelf{head: head{Format: headFormat}}
	for _, kv := range r.Kvs {
		if err := s.take("head", kv); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// commit replaces the head that was read, and carries out the operations with it.
func (e *Engine) commit(ctx context.Context, guard []clientv3.Cmp, s *shelf, next head, ops []clientv3.Op) (revision int64, err error) {
	data, err := json.Marshal(next)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, engine.RequestPatience)
	defer cancel()
	key := e.operators() + "head"
	r, err := e.opts.Client.Txn(led(ctx)).If(s.unchanged(key, guard)...).
		Then(append([]clientv3.Op{clientv3.OpPut(key, string(data))}, ops...)...).
		Else(clientv3.OpGet(key, clientv3.WithKeysOnly())).Commit()
	if err != nil {
		return 0, err
	}
	if !r.Succeeded {
		return 0, s.refused(r)
	}
	return r.Header.GetRevision(), nil
}

// guarded carries out an operation while the head is the one that was read.
func (e *Engine) guarded(ctx context.Context, guard []clientv3.Cmp, s *shelf, ops ...clientv3.Op) error {
	ctx, cancel := context.WithTimeout(ctx, engine.RequestPatience)
	defer cancel()
	key := e.operators() + "head"
	r, err := e.opts.Client.Txn(led(ctx)).If(s.unchanged(key, guard)...).Then(ops...).Else(clientv3.OpGet(key, clientv3.WithKeysOnly())).Commit()
	if err != nil {
		return err
	}
	if !r.Succeeded {
		return s.refused(r)
	}
	return nil
}

func (s *shelf) unchanged(key string, guard []clientv3.Cmp) []clientv3.Cmp {
	return append(slices.Clone(guard), clientv3.Compare(clientv3.ModRevision(key), "=", s.revision))
}

// refused says why a transaction was refused: by its head, or by its leader.
func (s *shelf) refused(r *clientv3.TxnResponse) error {
	var now int64
	if kvs := r.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
		now = kvs[0].GetModRevision()
	}
	if now != s.revision {
		return errHeadMoved
	}
	return engine.ErrNotLeading
}

// foldLog has the entries follow a log that counts, and removes it.
func (e *Engine) foldLog(ctx context.Context, guard []clientv3.Cmp, s *shelf) (*shelf, error) {
	for n := range s.head.Parts {
		r, err := e.fetch(ctx, e.logKey(s.head.Log, n))
		if err != nil {
			return nil, err
		}
		if len(r.Kvs) == 0 {
			return nil, fmt.Errorf("part %d of the log is missing", n)
		}
		var changes []engine.Change
		if err := json.Unmarshal(r.Kvs[0].GetValue(), &changes); err != nil {
			return nil, fmt.Errorf("part %d of the log: %w", n, err)
		}
		if err := e.guarded(ctx, guard, s, e.entryOps(changes)...); err != nil {
			return nil, err
		}
	}
	next := head{Format: headFormat, Sequence: s.head.Sequence}
	prefix := e.operators() + "log/"
	revision, err := e.commit(ctx, guard, s, next, []clientv3.Op{clientv3.OpDelete(prefix, clientv3.WithPrefix())})
	if err != nil {
		return nil, err
	}
	return &shelf{head: next, revision: revision}, nil
}

func (e *Engine) entryOps(changes []engine.Change) []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(changes))
	for i := range changes {
		key := e.operators() + "entries/" + changes[i].Key
		if changes[i].Data == nil {
			ops = append(ops, clientv3.OpDelete(key))
		} else {
			ops = append(ops, clientv3.OpPut(key, string(changes[i].Data)))
		}
	}
	return ops
}

// split divides changes into parts that fit a transaction each. The last change of a
// key counts: a transaction may not change a key twice.
func split(changes []engine.Change) [][]engine.Change {
	last := map[string]engine.Change{}
	for _, c := range changes {
		last[c.Key] = c
	}
	var out [][]engine.Change
	var part []engine.Change
	size := 0
	for _, key := range slices.Sorted(maps.Keys(last)) {
		c := last[key]
		n := len(c.Key) + 2*len(c.Data) // a log has the data in base64
		if len(part) > 0 && (len(part) == txnOps || size+n > txnBytes) {
			out, part, size = append(out, part), nil, 0
		}
		part, size = append(part, c), size+n
	}
	if len(part) > 0 {
		out = append(out, part)
	}
	return out
}
