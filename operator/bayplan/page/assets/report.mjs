// Entry of a report without rates.

import { PANELS, readReport, showReport } from './report_source.mjs';

showReport(readReport(), PANELS);
