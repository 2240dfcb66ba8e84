package crawl

// PlanVersion is the version of the plans that this process makes and the greatest that it
// works by. It is also the format of a job, which covers all that is kept of it: plan, rows of
// the frontier, records, failures and content. A job is written in one format to its end; a
// worker reads each format up to its own, and leaves jobs of a greater one alone.
//
// JSON of a plan passes over fields that it does not know, and so a worker of the version before
// does not mind a new field: it works as if the field were zero. Hence the rule:
//
//   - A field whose zero value is all that an older worker does (a hint, a trace, a default spelled
//     out) comes without a new version.
//   - A field that bounds what is fetched, to whom what is sent, or what is kept (a scope, a
//     header's origins, a limit), and any change of what a field means, comes with the next
//     version: an older worker would otherwise fetch what the caller forbade. So does a field of a
//     record, a row or a key that readers must not miss.
//
// The next version is made here and as FORMAT in pkg/store/scripts/include/job.lua, where a test
// compares; [Spec.Plan] then says V of the plans that need it, and of no others, so that older
// workers go on with those. deployments/UPGRADING.md has the steps.
const PlanVersion = 1

// Version returns the version of p, at least 1: that of a plan from before there were versions,
// and of one that says none.
func (p *Plan) Version() int { return max(1, p.V) }
