package store

import (
	"bytes"
	"context"
	"fmt"
	"sync"
)

// Memory is a [Store] that forgets everything with the process.
type Memory struct {
	mu      sync.Mutex
	values  map[string]Value
	watches watchers
}

var _ Store = (*Memory)(nil)

// NewMemory makes an empty store.
func NewMemory() *Memory { return &Memory{values: map[string]Value{}} }

// Get implements [Store].
func (m *Memory) Get(ctx context.Context, key string) (Value, error) {
	if err := ready(ctx, key); err != nil {
		return Value{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.values[key]
	if !ok {
		return Value{}, notFound(key)
	}
	return Value{Data: bytes.Clone(v.Data), Revision: v.Revision}, nil
}

// CompareAndSwap implements [Store].
func (m *Memory) CompareAndSwap(ctx context.Context, key string, revision uint64, data []byte) (uint64, error) {
	return m.CompareAndSwapNotify(ctx, key, revision, data, func() {})
}

// CompareAndSwapNotify implements [Store].
func (m *Memory) CompareAndSwapNotify(ctx context.Context, key string, revision uint64, data []byte, written func()) (uint64, error) {
	if err := ready(ctx, key); err != nil {
		return 0, err
	}
	if err := checkSize(key, data); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if have := m.values[key].Revision; have != revision {
		return 0, stale(key, have, revision)
	}
	v := Value{Data: bytes.Clone(data), Revision: revision + 1}
	m.values[key] = v
	m.watches.notify(key, v)
	written()
	return v.Revision, nil
}

// Watch implements [Store].
func (m *Memory) Watch(ctx context.Context, key string) <-chan Value { return m.watches.open(ctx, key) }

// Close ends all watches.
func (m *Memory) Close() error {
	m.watches.closeAll()
	return nil
}

func ready(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("state %s: %w", key, err)
	}
	return checkKey(key)
}
