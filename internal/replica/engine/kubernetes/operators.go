package kubernetes

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/v1alpha1"
	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// The API has no write of several objects together. So what operators write stands in
// objects OperatorState that never change, and the Lease lists those that count, in their
// order:
//
//	write     makes an object with the changes, which means nothing yet; an update of the
//	          Lease appends it to the list
//	compact   once the list is long, a write makes objects with everything, and the list
//	          has only these
//	read      reads the Lease, then the objects of its list
//
// The update of the Lease is the only step that counts. It is guarded by the resource
// version, and so by leadership, claim and the last write together. Names are random: an
// object that left the list never returns to it, and may be removed.

const (
	// maxParts is how many objects the list may have before a write compacts it.
	maxParts = 32
	// mostParts bounds the list after a write.
	mostParts = 200
	// partBytes is how much data an object has, or one larger entry: etcd takes requests
	// of 1.5 MiB, and JSON has data in base64.
	partBytes = 600 << 10

	headFormat = 1

	leaseLabel, epochLabel = "isobar.dev/lease", "isobar.dev/epoch"
)

// head lists the objects that count.
type head struct {
	Format   int      `json:"format"`
	Sequence uint64   `json:"sequence"`
	Parts    []string `json:"parts,omitempty"`
}

func decodeHead(text string) (head, error) {
	h := head{Format: headFormat}
	if text == "" {
		return h, nil
	}
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return h, fmt.Errorf("annotation %s: %w", operatorsKey, err)
	}
	if h.Format != headFormat {
		return h, fmt.Errorf("annotation %s has format %d, this program reads %d: %w", operatorsKey, h.Format, headFormat, group.ErrNewerFormat)
	}
	if len(h.Parts) > mostParts {
		return h, fmt.Errorf("annotation %s lists %d objects, at most %d are read", operatorsKey, len(h.Parts), mostParts)
	}
	return h, nil
}

var _ engine.Operators = (*Engine)(nil)

// errPartMissing says that an object of the list does not exist.
var errPartMissing = errors.New("an object OperatorState that counts was deleted")

// ReadOperators implements [engine.Operators]. If an object that counts was deleted, it returns
// the same as if nothing was ever written, so that the group writes its state again.
func (e *Engine) ReadOperators(ctx context.Context) (engine.Written, error) {
	for range tries {
		s, err := e.read(ctx)
		if err != nil {
			return engine.Written{}, e.failed(err)
		}
		entries, err := e.entries(ctx, s.head)
		if err == nil {
			return engine.Written{Sequence: s.head.Sequence, Entries: entries}, nil
		}
		if !errors.Is(err, errPartMissing) {
			return engine.Written{}, e.failed(err)
		}
		again, err := e.read(ctx)
		if err != nil {
			return engine.Written{}, e.failed(err)
		}
		if slices.Equal(again.head.Parts, s.head.Parts) {
			return engine.Written{Entries: map[string][]byte{}}, nil
		}
	}
	return engine.Written{}, e.failed(fmt.Errorf("it changed during each of %d attempts to read it", tries))
}

// LastWrite implements [engine.Operators].
func (e *Engine) LastWrite(ctx context.Context) (uint64, error) {
	s, err := e.read(ctx)
	if err != nil {
		return 0, e.failed(err)
	}
	return s.head.Sequence, nil
}

func (e *Engine) failed(err error) error {
	return fmt.Errorf("lease %s/%s: writes of operators: %w", e.opts.Namespace, e.opts.Lease, err)
}

// entries reads the objects of a list, and applies them in their order.
func (e *Engine) entries(ctx context.Context, h head) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range h.Parts {
		data, err := e.client.Get().AbsPath(e.objects(), name).Do(ctx).Raw()
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%w: %s", errPartMissing, name)
		}
		if err != nil {
			return nil, explain(err, permission)
		}
		var object v1alpha1.OperatorState
		if err := json.Unmarshal(data, &object); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		engine.Apply(out, changesOf(object.Changes))
		if len(out) > engine.MaxEntries {
			return nil, fmt.Errorf("%w: more than %d entries", engine.ErrTooLarge, engine.MaxEntries)
		}
	}
	return out, nil
}

const permission = "get, list, create and delete of operatorstates.isobar.dev"

func changesOf(list []v1alpha1.OperatorChange) []engine.Change {
	out := make([]engine.Change, len(list))
	for i := range list {
		out[i].Key = list[i].Key
		if !list[i].Removed {
			out[i].Data = append([]byte{}, list[i].Data...)
		}
	}
	return out
}

func (e *Engine) objects() string {
	return "/apis/" + v1alpha1.GroupVersion.String() + "/namespaces/" + e.opts.Namespace + "/" + v1alpha1.OperatorStates
}

// WriteOperators implements [engine.Operators].
func (e *Engine) WriteOperators(ctx context.Context, claim group.Claim, previous, next uint64, changes []engine.Change) error {
	if err := engine.CheckChanges(previous, next, changes); err != nil {
		return err
	}
	e.writing.Lock()
	defer e.writing.Unlock()
	if err := e.writeOperators(ctx, claim, previous, next, changes); err != nil {
		return e.failed(err)
	}
	return nil
}

func (e *Engine) writeOperators(ctx context.Context, claim group.Claim, previous, next uint64, changes []engine.Change) error {
	s, err := e.read(ctx)
	if err != nil {
		return err
	}
	if err := e.guarded(s, claim); err != nil {
		return err
	}
	from := s.head
	if from.Sequence != previous {
		if from, err = e.damaged(ctx, from, previous); err != nil {
			return err
		}
	}
	parts, keep, err := e.plan(ctx, from, changes)
	if err != nil {
		return err
	}
	made, err := e.make(ctx, claim, parts)
	if err != nil {
		e.remove(ctx, made)
		return err
	}
	counts := head{Format: headFormat, Sequence: next, Parts: append(slices.Clone(keep), made...)}
	switch err := e.commit(ctx, s, claim, counts); {
	case errors.Is(err, engine.ErrNotLeading), errors.Is(err, engine.ErrLed), errors.Is(err, engine.ErrStale):
		e.remove(ctx, made)
		return err
	case err != nil: // the write may have happened; the next leader removes objects that do not count
		return err
	}
	if len(keep) == 0 {
		e.remove(ctx, s.head.Parts)
	}
	if e.collected < claim.Epoch && e.collect(ctx, claim, counts) == nil {
		e.collected = claim.Epoch
	}
	return nil
}

// guarded returns an error unless this replica leads with the claim, or, for the zero claim, no
// replica leads.
func (e *Engine) guarded(s *state, claim group.Claim) error {
	if claim.IsZero() {
		now := time.Now()
		if e.observe(s, now); !e.free(s, now) {
			return engine.ErrLed
		}
		return nil
	}
	if s.holderText() != e.self || s.claim != claim {
		return engine.ErrNotLeading
	}
	return nil
}

// damaged returns the head to go on from where an object that counts was deleted: a
// caller that builds on nothing replaces everything.
func (e *Engine) damaged(ctx context.Context, h head, previous uint64) (head, error) {
	if previous == 0 {
		if _, err := e.entries(ctx, h); errors.Is(err, errPartMissing) {
			return head{Format: headFormat}, nil
		} else if err != nil {
			return h, err
		}
	}
	return h, fmt.Errorf("%w: the last one has number %d, not %d", engine.ErrStale, h.Sequence, previous)
}

// plan returns the object that a write has to make, and the objects that count beside it.
func (e *Engine) plan(ctx context.Context, from head, changes []engine.Change) (parts [][]v1alpha1.OperatorChange, keep []string, err error) {
	parts = split(changes)
	if len(from.Parts)+len(parts) <= maxParts {
		return parts, from.Parts, nil
	}
	all, err := e.entries(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	engine.Apply(all, changes)
	whole := make([]engine.Change, 0, len(all))
	for key, data := range all {
		whole = append(whole, engine.Change{Key: key, Data: data})
	}
	if parts = split(whole); len(parts) > mostParts {
		return nil, nil, fmt.Errorf("%w: everything that operators wrote takes %d objects, at most %d are allowed", engine.ErrTooLarge, len(parts), mostParts)
	}
	return parts, nil, nil
}

// split divides changes into objects. The last change of a key counts.
func split(changes []engine.Change) [][]v1alpha1.OperatorChange {
	last := make(map[string]engine.Change, len(changes))
	for _, c := range changes {
		last[c.Key] = c
	}
	var out [][]v1alpha1.OperatorChange
	var part []v1alpha1.OperatorChange
	size := 0
	for _, key := range slices.Sorted(maps.Keys(last)) {
		c := last[key]
		n := len(c.Key) + len(c.Data) + 64
		if len(part) > 0 && size+n > partBytes {
			out, part, size = append(out, part), nil, 0
		}
		part = append(part, v1alpha1.OperatorChange{Key: c.Key, Data: c.Data, Removed: c.Data == nil})
		size += n
	}
	if len(part) > 0 {
		out = append(out, part)
	}
	return out
}

// make makes objects, and returns the names of those that it tried to make.
func (e *Engine) make(ctx context.Context, claim group.Claim, parts [][]v1alpha1.OperatorChange) (made []string, err error) {
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	for n, part := range parts {
		name := fmt.Sprintf("%s-%s-%d", e.opts.Lease, hex.EncodeToString(id[:]), n)
		body, err := json.Marshal(&v1alpha1.OperatorState{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "OperatorState"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: e.opts.Namespace, Labels: map[string]string{
				leaseLabel: e.opts.Lease, epochLabel: strconv.FormatUint(claim.Epoch, 10),
			}},
			Changes: part,
		})
		if err != nil {
			return made, err
		}
		made = append(made, name)
		_, err = e.client.Post().AbsPath(e.objects()).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Raw()
		if apierrors.IsNotFound(err) {
			return made, fmt.Errorf("the cluster does not have the custom resource OperatorState: apply deploy/kubernetes/crds: %w", err)
		}
		if err != nil {
			return made, explain(err, permission)
		}
	}
	return made, nil
}

// commit has the Lease list the objects that count. Renewals change the Lease, too: it restarts
// as long as no other replica wrote for operators or leads.
func (e *Engine) commit(ctx context.Context, s *state, claim group.Claim, counts head) error {
	data, err := json.Marshal(counts)
	if err != nil {
		return err
	}
	before := s.head
	for range tries {
		next := e.unclaimed()
		if s.lease != nil {
			next = s.lease.DeepCopy()
			next.Annotations = maps.Clone(next.Annotations)
		}
		next.Annotations[operatorsKey] = string(data)
		if _, err = e.write(ctx, next); err == nil || !replaced(err) {
			return err
		}
		if s, err = e.read(ctx); err != nil {
			return err
		}
		if err := e.guarded(s, claim); err != nil {
			return err
		}
		if s.head.Sequence != before.Sequence || !slices.Equal(s.head.Parts, before.Parts) {
			return fmt.Errorf("%w: the last one has number %d", engine.ErrStale, s.head.Sequence)
		}
	}
	return fmt.Errorf("it changed during each of %d attempts to write it", tries)
}

// unclaimed is the Lease of a group in which no replica has led yet.
func (e *Engine) unclaimed() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: e.opts.Lease, Namespace: e.opts.Namespace, Annotations: map[string]string{groupKey: e.opts.Group},
	}}
}

// remove removes objects that don't count. Remaining ones take space and do no harm.
func (e *Engine) remove(ctx context.Context, names []string) {
	for _, name := range names {
		_ = e.client.Verb(http.MethodDelete).AbsPath(e.objects(), name).Do(ctx).Error()
	}
}

// collect removes objects of earlier epochs that never counted. No leader of an earlier epoch can
// have the Lease list them any more.
func (e *Engine) collect(ctx context.Context, claim group.Claim, counts head) error {
	data, err := e.client.Get().AbsPath(e.objects()).Param("labelSelector", leaseLabel+"="+e.opts.Lease).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx).Raw()
	if err != nil {
		return err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	var left []string
	for i := range list.Items {
		epoch, err := strconv.ParseUint(list.Items[i].Labels[epochLabel], 10, 64)
		if err == nil && epoch < claim.Epoch && !slices.Contains(counts.Parts, list.Items[i].Name) {
			left = append(left, list.Items[i].Name)
		}
	}
	e.remove(ctx, left)
	return nil
}
