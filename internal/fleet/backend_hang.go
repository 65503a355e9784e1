package fleet

import (
	"context"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// Hang stops the backend from answering, as a deadlock does: it accepts
// connections, requests and health checks, and is silent. Safe to call twice.
func (b *Backend) Hang() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hang == nil {
		b.hang = make(chan struct{})
	}
}

// Resume ends a hang; what still waits is worked on. Safe to call twice.
func (b *Backend) Resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hang != nil {
		close(b.hang)
		b.hang = nil
	}
}

// await returns when the backend does not hang, or with an error when the
// context ends; hung tells whether it did.
func (b *Backend) await(ctx context.Context) (hung bool, err error) {
	for {
		b.mu.Lock()
		over := b.hang
		b.mu.Unlock()
		if over == nil {
			return hung, nil
		}
		hung = true
		select {
		case <-over:
		case <-ctx.Done():
			return hung, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// backendHealth answers health checks over gRPC.
type backendHealth struct {
	healthpb.UnimplementedHealthServer

	backend *Backend
}

// Check implements [healthpb.HealthServer].
func (h backendHealth) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if _, err := h.backend.await(ctx); err != nil {
		return nil, err
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}
