// Package convert makes health check specifiers from services, in each version of
// the API, and reads and checks what checkers send.
package convert
