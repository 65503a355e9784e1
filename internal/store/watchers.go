package store

import (
	"bytes"
	"context"
	"sync"
)

// watchers are the open watches of a store, by key.
type watchers struct {
	mu     sync.Mutex
	byKey  map[string]map[chan Value]func() bool // to what releases the watch's context
	closed bool
}

// open adds a watch of key that ends with ctx.
func (w *watchers) open(ctx context.Context, key string) <-chan Value {
	ch := make(chan Value, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		close(ch)
		return ch
	}
	if w.byKey == nil {
		w.byKey = map[string]map[chan Value]func() bool{}
	}
	if w.byKey[key] == nil {
		w.byKey[key] = map[chan Value]func() bool{}
	}
	w.byKey[key][ch] = context.AfterFunc(ctx, func() { w.drop(key, ch) })
	return ch
}

func (w *watchers) drop(key string, ch chan Value) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, open := w.byKey[key][ch]; open {
		delete(w.byKey[key], ch)
		close(ch)
	}
}

// notify passes v to all watches of key. It replaces a value that was not received
// yet, so it never blocks.
func (w *watchers) notify(key string, v Value) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.byKey[key] {
		select {
		case <-ch:
		default:
		}
		ch <- Value{Data: bytes.Clone(v.Data), Revision: v.Revision} // room was just made, and only tell sends
	}
}

// closeAll ends all watches and those to come.
func (w *watchers) closeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, watches := range w.byKey {
		for ch, release := range watches {
			release()
			close(ch)
		}
	}
	w.byKey = nil
}
