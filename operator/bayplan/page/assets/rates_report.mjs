// Entry of a report with rates, whose charts are as large as all other modules together.

import { Rates } from './panels/rates.mjs';
import { PANELS, readReport, showReport } from './report_source.mjs';

showReport(readReport(), { ...PANELS, rates: Rates });
