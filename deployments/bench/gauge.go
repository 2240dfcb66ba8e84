package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// gauge is what Redis says of itself at one time: commands that it carried out, those in scripts with them; scripts
// that clients sent; seconds of its main thread; bytes received, sent, of its append-only file and of memory.
type gauge struct{ commands, scripts, cpu, received, sent, aof, memory float64 }

// less answers what came since an earlier look.
func (g gauge) less(e gauge) gauge {
	return gauge{
		g.commands - e.commands, g.scripts - e.scripts, g.cpu - e.cpu, g.received - e.received, g.sent - e.sent,
		g.aof - e.aof, g.memory - e.memory,
	}
}

// look asks a Redis what it says of itself.
func look(ctx context.Context, rdb redis.UniversalClient) (gauge, error) {
	var g gauge
	var errs []error
	read := func(into *float64, section string, fields ...string) {
		v, err := infoNumber(ctx, rdb, section, fields...)
		*into = v
		errs = append(errs, err)
	}
	read(&g.commands, "stats", "total_commands_processed")
	read(&g.received, "stats", "total_net_input_bytes")
	read(&g.sent, "stats", "total_net_output_bytes")
	read(&g.cpu, "cpu", "used_cpu_user_main_thread", "used_cpu_sys_main_thread")
	read(&g.aof, "persistence", "aof_current_size")
	read(&g.memory, "memory", "used_memory")
	stats, err := rdb.InfoMap(ctx, "commandstats").Result()
	errs = append(errs, err)
	for _, name := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
		calls, _, _ := strings.Cut(strings.TrimPrefix(stats["Commandstats"][name], "calls="), ",")
		n, _ := strconv.ParseFloat(calls, 64) // none yet: 0
		g.scripts += n
	}
	return g, errors.Join(errs...)
}

// infoNumber answers the sum of the given fields of a section of INFO; a field that is not there is 0 for those of the
// append-only file, which are there only where it is on, and an error else.
func infoNumber(ctx context.Context, rdb redis.UniversalClient, section string, fields ...string) (float64, error) {
	info, err := rdb.Info(ctx, section).Result()
	if err != nil {
		return 0, fmt.Errorf("info: %w", err)
	}
	sum, found := 0.0, 0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !slices.Contains(fields, name) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("info: %s: %w", name, err)
		}
		sum += v
		found++
	}
	if found != len(fields) && section != "persistence" {
		return 0, fmt.Errorf("INFO %s lacks one of %v", section, fields)
	}
	return sum, nil
}

// memoryOf answers the bytes of all keys that match.
func memoryOf(ctx context.Context, rdb redis.UniversalClient, match string) (float64, error) {
	var sum int64
	keys := rdb.Scan(ctx, 0, match, 1000).Iterator()
	for keys.Next(ctx) {
		n, err := rdb.MemoryUsage(ctx, keys.Val(), 0).Result()
		if err != nil {
			return 0, fmt.Errorf("memory usage: %w", err)
		}
		sum += n
	}
	if err := keys.Err(); err != nil {
		return 0, fmt.Errorf("scan: %w", err)
	}
	return float64(sum), nil
}
