// Package lrs serves the load reporting service: it tells clients what to
// report and how often, checks what they send, and keeps one window per stream
// until the control loop collects it.
package lrs
