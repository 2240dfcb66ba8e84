// Crawls a site by spider-rs, and writes what that took as one line of JSON. Without a URL it only loads the package.
//
//	node spider.mjs URL links     follows the links, and hands out no page: as fast as it is
//	node spider.mjs URL titles    takes the title of each page from a page event, as its documentation does
import { readFileSync, writeSync } from 'node:fs'
import { Website, pageTitle } from '@spider-rs/spider-rs'

// peak is the most memory that this process had resident, in MiB.
const peak = () => Number(/VmHWM:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]) / 1024

const [url, what] = process.argv.slice(2)
if (url) {
  let told = 0
  // Without a budget the site would be crawled as well; with one it is told as the documentation tells it.
  const website = new Website(url).withBudget({ '*': 1_000_000 }).build()
  const before = process.cpuUsage()
  const begun = performance.now()
  if (what === 'titles') {
    await website.crawl((_err, page) => { if (pageTitle(page) !== '') told++ })
  } else {
    await website.crawl()
  }
  const seconds = (performance.now() - begun) / 1000
  const used = process.cpuUsage(before)
  writeSync(1, JSON.stringify({ seconds, cpu: (used.user + used.system) / 1e6, peak_mib: peak(), told }) + '\n')
  // A page event keeps the process alive for seconds after its crawl, or for good.
  process.exit(0)
}
