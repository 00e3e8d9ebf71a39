// Intentionally empty: with an assembly file in the package, Go accepts
// declarations of functions whose bodies are elsewhere (queue_life.go).
