package store

// Dials counts the connections that were made, or tried, to the store. Whoever remembers what the store
// had seen must doubt it when the number has changed: after a failover, or a start with
// older files, the store may know less, and no connection of before leads there. It does no I/O.
func (s *Store) Dials() uint64 {
	p := s.rdb.PoolStats()
	n := uint64(p.Misses)
	if p.PipelineStats != nil {
		n += uint64(p.PipelineStats.Misses)
	}
	return n
}
